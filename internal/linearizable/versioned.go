package linearizable

import "github.com/netcraq/netcraq/api/wire"

// Versioned is a model of names whose clients see the versions of the names themselves. These
// versions only increase, even when a name's key moves to another chain, or is removed and added
// again. A name without a key, or whose key no one has written, has version 0. Calls of the history
// add and remove keys. A move changes nothing.
var Versioned = model(versioned{}, versioned.step, func(x Call) string { return x.Name })

// versioned is the state of a name in the model Versioned.
type versioned struct {
	Register
	there   bool // the name has a key
	written bool // the key has a version that clients see; otherwise they see 0
	// cleared is set by a removal. For a moment, a removal leaves one or several tombstones at some
	// switches and nothing at others.
	cleared bool
}

// later returns the state after a change with a later, unknown version.
func (s versioned) later(value string, found bool) versioned {
	s.Register = Register{version: s.version, above: true, value: value, found: found}
	s.there, s.written, s.cleared = true, true, false
	return s
}

func (s versioned) step(x Call) (bool, versioned) {
	nothing := !x.Found && x.Version == 0
	switch {
	case x.Op == Add && s.there:
		return false, s
	case x.Op == Add && x.Value != "":
		return true, s.later(x.Value, true)
	case x.Op == Add: // the tombstone's version becomes the name's, but no client sees it
		s = s.later("", false)
		s.written = false
		return true, s
	case x.Op == Clear || x.Op == Remove:
		if !s.there {
			return x.Op == Clear, s
		}
		s = s.later("", false)
		s.there, s.cleared = x.Op == Clear, true
		return true, s
	case x.Op == wire.Read || x.Failed:
		if x.Failed && x.Version == x.Expected {
			return false, s
		}
		if nothing && (!s.written || s.cleared) {
			return true, s
		}
		if s.cleared && !x.Found && x.Version > s.version {
			s.version, s.above = x.Version, false
			return true, s
		}
		ok, next := s.Register.Step(x)
		s.Register = next
		return ok && s.written, s
	case x.Delete && x.Op == wire.Write && nothing && !x.Unknown: // there was nothing to delete
		return !s.written || s.cleared, s
	case !s.there, x.Op == wire.CAS && (x.Expected == 0) == s.written:
		return x.Unknown, s // a call with this answer cannot have been executed
	case x.Op == wire.CAS && x.Expected != 0:
		at, ok := s.is(x.Expected)
		if !ok {
			return x.Unknown, s
		}
		s.Register = at
	}
	if at, ok := s.is(x.Version); ok && x.Delete && s.written && !s.found && !x.Unknown { // the call changes nothing
		s.Register = at
		return true, s
	}
	next := s.later(x.Value, !x.Delete)
	if !x.Unknown {
		next.version, next.above = x.Version, false
	}
	return x.Unknown || x.Version > s.version, next
}
