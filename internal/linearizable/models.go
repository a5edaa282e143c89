package linearizable

import (
	"strconv"

	"github.com/netcraq/netcraq/api/wire"
)

// Registers and Added are models of keys. A read returns the newest value and version. A write
// yields a higher version. A CAS is executed if the version is the expected one. Deleting an absent
// value may change nothing. In Registers, no one has written the keys before. In Added, the keys
// were added with a version that no client knows.
var (
	Registers = model(Register{}, Register.Step, func(x Call) uint32 { return x.Key })
	Added     = model(Register{above: true}, Register.Step, func(x Call) uint32 { return x.Key })
)

// Moving is a model of one key that is moved at unknown times. Its versions start again under
// another KEY_ID. Names is a model of keys that calls of the history add, remove and move. A key's
// versions are those of its name (api.Key's VersionOffset). So a move does not change them, and a
// recreated name continues above all its earlier versions.
var (
	Moving = model(name{Register: Register{above: true}}, name.moving, func(Call) bool { return true })
	Names  = model(name{}, name.step, func(x Call) string { return x.Name })
)

// Register is a key's state. The key's version is version or, if above is set, an unknown higher
// version. After a write with an unknown outcome, the version is unknown until a read.
type Register struct {
	version wire.Version
	above   bool
	value   string
	found   bool
}

// is reports whether the state's version may be v. If so, it also returns the state with this
// version.
func (s Register) is(v wire.Version) (Register, bool) {
	if s.above {
		ok := v > s.version
		s.version, s.above = v, false
		return s, ok
	}
	return s, v == s.version
}

// Step reports whether a call may have its outcome in this state, and returns the state after the
// call.
func (s Register) Step(x Call) (bool, Register) {
	next := Register{version: x.Version, value: x.Value, found: !x.Delete}
	switch {
	case x.Op == wire.Read || x.Failed:
		s, ok := s.is(x.Version)
		return ok && s.found == x.Found && s.value == x.Got && !(x.Failed && x.Version == x.Expected), s
	case x.Op == Rewrite:
		return x.Version > s.version && s.found == next.found && s.value == next.value, next
	case x.Op == wire.CAS:
		at, ok := s.is(x.Expected)
		if !ok { // the CAS must fail
			return x.Unknown, s
		}
		s = at
	case x.Op == Increment:
		next.value = s.incremented()
		switch {
		case next.value == "": // the increment must fail
			return x.Unknown, s
		case !x.Unknown && next.value != x.Value:
			return false, s
		}
	}
	if x.Delete && !s.found && !x.Unknown {
		if s, ok := s.is(x.Version); ok {
			return true, s
		}
	}
	if x.Unknown {
		next.version, next.above = s.version, true
		return true, next
	}
	return x.Version > s.version, next
}

// incremented returns the existing number plus one, or "" if the value is not a number.
func (s Register) incremented() string {
	n := int64(0)
	if s.found {
		var err error
		if n, err = strconv.ParseInt(s.value, 10, 64); err != nil {
			return ""
		}
	}
	return strconv.FormatInt(n+1, 10)
}

// name is the state of a key's name in the model. It holds the name's KEY_ID and content.
type name struct {
	key uint32 // the name's KEY_ID; 0 if the name has no key
	Register
	// cleared is set by a removal. A removal that is resumed, because a controller died or the call
	// was lost, may leave another tombstone.
	cleared bool
}

func (s name) moving(x Call) (bool, name) {
	if x.Key != s.key {
		s.key, s.version, s.above = x.Key, 0, true
	}
	ok, next := s.Register.Step(x)
	return ok, name{key: s.key, Register: next}
}

func (s name) step(x Call) (bool, name) {
	here := s.key == x.Key
	someVersion := func(value string, found bool) Register {
		return Register{version: s.version, above: true, value: value, found: found}
	}
	switch {
	case x.Op == Add && s.key == 0:
		return true, name{key: x.Key, Register: someVersion("", false)}
	case x.Op >= Add && !here: // a change that has not ended may take effect after all other calls
		return x.Unknown || x.Op == Clear, s
	case x.Op == Add:
		return false, s
	case x.Op == First:
		return true, name{key: x.Key, Register: someVersion(x.Value, true)}
	case x.Op == Clear:
		return true, name{key: x.Key, Register: someVersion("", false), cleared: true}
	case x.Op == Remove:
		return true, name{Register: someVersion("", false)}
	case x.Op == Move:
		return true, name{key: x.To, Register: s.Register}
	case x.Absent:
		return !here, s
	case !here:
		return x.Unknown, s // a call for another key cannot have been executed
	}
	looks := x.Op == wire.Read || x.Failed
	if s.cleared && looks && !x.Found && x.Version > s.version {
		s.Register = someVersion("", false)
	}
	ok, next := s.Register.Step(x)
	return ok, name{s.key, next, s.cleared && looks}
}
