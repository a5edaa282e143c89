package linearizable

import (
	"strconv"

	"github.com/netcraq/netcraq/api/wire"
)

// What a key may do: a read tells the newest value and version; a write gives a higher version; a
// CAS is executed if the version is the expected one; deleting what is not there may change
// nothing. Nobody has written the keys of Registers
// before. Those of Added were added, with a version that no client was told.
var (
	Registers = model(Register{}, Register.Step, func(x Call) uint32 { return x.Key })
	Added     = model(Register{above: true}, Register.Step, func(x Call) uint32 { return x.Key })
)

// Moving is one key that is moved at times that nobody tells: under another KEY_ID its versions
// begin again. Names are keys that are added, removed and moved by calls of the history. Their
// versions are those of the name (api.Key's VersionOffset): a move changes none, and a name that
// comes back continues above all that it had.
var (
	Moving = model(name{Register: Register{above: true}}, name.moving, func(Call) bool { return true })
	Names  = model(name{}, name.step, func(x Call) string { return x.Name })
)

// Register is a key's state. Its version is the one, or above it: after a write of unknown outcome
// nobody knows more until somebody reads it.
type Register struct {
	version wire.Version
	above   bool
	value   string
	found   bool
}

// is says whether the version may be v, and if so it is from then on.
func (s Register) is(v wire.Version) (Register, bool) {
	if s.above {
		ok := v > s.version
		s.version, s.above = v, false
		return s, ok
	}
	return s, v == s.version
}

// Step says whether a call may have had its outcome now, and gives the state after it.
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
		if !ok { // it fails
			return x.Unknown, s
		}
		s = at
	case x.Op == Increment:
		next.value = s.incremented()
		switch {
		case next.value == "": // it fails
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

// incremented is the number after the one that is there, "" if none is.
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

// name is a name's state: where it is, and what is there.
type name struct {
	key uint32 // 0: it is nowhere
	Register
	// cleared is set by a removal. What takes one up again, after a controller has died or was not
	// heard, may leave another tombstone.
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
	case x.Op >= Add && !here: // one that has not ended may come after everything else
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
		return x.Unknown, s // it is executed nowhere else
	}
	looks := x.Op == wire.Read || x.Failed
	if s.cleared && looks && !x.Found && x.Version > s.version {
		s.Register = someVersion("", false)
	}
	ok, next := s.Register.Step(x)
	return ok, name{s.key, next, s.cleared && looks}
}
