package bmthrift

import (
	"bytes"
	"fmt"
	"math"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// maxPriority minus a priority of BMv2 is the equivalent priority of P4Runtime. In BMv2 the
// smallest priority wins, and in P4Runtime the largest.
const maxPriority = math.MaxInt32

func bytesOf(width int) int { return (width + 7) / 8 }

// fits reports whether b is a number of at most width bits, encoded in exactly as many bytes as
// width needs.
func fits(b []byte, width int) bool {
	if len(b) != bytesOf(width) {
		return false
	}
	spare := len(b)*8 - width
	return spare == 0 || b[0]>>(8-spare) == 0
}

// normalized encodes the number b in as many bytes as width bits need. It returns nil if b does not
// fit.
func normalized(b []byte, width int) []byte {
	n := bytesOf(width)
	for len(b) > n {
		if b[0] != 0 {
			return nil
		}
		b = b[1:]
	}
	out := make([]byte, n)
	copy(out[n-len(b):], b)
	if !fits(out, width) {
		return nil
	}
	return out
}

// matchOf converts a match key that a client sent to an entry of table t, with its priority.
func matchOf(t *bmv2json.Table, key idl.MatchKey,
	options idl.EntryOptions) (*target.TableEntry, error) {
	bad := func(format string, args ...any) (*target.TableEntry, error) {
		return nil, refusal(idl.TableCodeBadMatchKey, "the key for table %s: %s", t.Name,
			fmt.Sprintf(format, args...))
	}
	if len(t.Keys) == 0 {
		return nil, refusal(idl.TableCodeNoTableKey,
			"table %s has no key, so no entries but the default", t.Name)
	}
	if len(key) != len(t.Keys) {
		return bad("it has %d fields, not %d", len(t.Keys), len(key))
	}
	e := &target.TableEntry{}
	for i, k := range t.Keys {
		m, err := fieldMatchOf(&k, key[i])
		if err != nil {
			return bad("field %d (%s): %v", i+1, k.Name, err)
		}
		e.Match = append(e.Match, m)
	}
	if !needsPriority(t) {
		return e, nil
	}
	if options.Priority == nil {
		e.Priority = maxPriority // the equivalent of BMv2's priority 0
		return e, nil
	}
	if p := *options.Priority; p < 0 || p == maxPriority {
		return bad("its priority is at least 0 and less than %d, not %d", maxPriority, p)
	}
	e.Priority = int(maxPriority - *options.Priority)
	return e, nil
}

// needsPriority reports whether P4Runtime requires a priority for entries of t.
func needsPriority(t *bmv2json.Table) bool {
	for _, k := range t.Keys {
		switch k.Kind {
		case bmv2json.MatchTernary, bmv2json.MatchRange, bmv2json.MatchOptional:
			return true
		}
	}
	return false
}

func fieldMatchOf(k *bmv2json.Key, p idl.MatchParam) (target.FieldMatch, error) {
	none := target.FieldMatch{}
	wrong := fmt.Errorf("it is matched %v, not %v", k.Kind, p.Type)
	number := func(b []byte) error {
		if !fits(b, k.Width) {
			return fmt.Errorf("%x is not a number of %d bits in %d bytes", b, k.Width,
				bytesOf(k.Width))
		}
		return nil
	}
	switch k.Kind {
	case bmv2json.MatchExact:
		if p.Type != idl.MatchTypeExact || p.Exact == nil {
			return none, wrong
		}
		return target.FieldMatch{Value: p.Exact.Key}, number(p.Exact.Key)
	case bmv2json.MatchValid:
		if p.Type != idl.MatchTypeValid || p.Valid == nil {
			return none, wrong
		}
		if p.Valid.Key {
			return target.FieldMatch{Value: []byte{1}}, nil
		}
		return target.FieldMatch{Value: []byte{0}}, nil
	case bmv2json.MatchLPM:
		if p.Type != idl.MatchTypeLPM || p.LPM == nil {
			return none, wrong
		}
		n := int(p.LPM.PrefixLength)
		if n < 0 || n > k.Width {
			return none, fmt.Errorf("a prefix of %d bits of %d", n, k.Width)
		}
		if err := number(p.LPM.Key); err != nil {
			return none, err
		}
		value := bytes.Clone(p.LPM.Key)
		clearBelow(value, k.Width-n)
		return target.FieldMatch{Value: value, PrefixLen: n}, nil
	case bmv2json.MatchTernary, bmv2json.MatchOptional:
		if p.Type != idl.MatchTypeTernary || p.Ternary == nil {
			return none, wrong
		}
		if err := number(p.Ternary.Key); err != nil {
			return none, err
		}
		if err := number(p.Ternary.Mask); err != nil {
			return none, fmt.Errorf("the mask: %w", err)
		}
		value := bytes.Clone(p.Ternary.Key)
		for i := range value {
			value[i] &= p.Ternary.Mask[i]
		}
		return target.FieldMatch{Value: value, Mask: p.Ternary.Mask}, nil
	default:
		if p.Type != idl.MatchTypeRange || p.Range == nil {
			return none, wrong
		}
		if err := number(p.Range.Start); err != nil {
			return none, err
		}
		return target.FieldMatch{Value: p.Range.Start, Mask: p.Range.End}, number(p.Range.End)
	}
}

// clearBelow sets the lowest n bits of the number b to 0.
func clearBelow(b []byte, n int) {
	for i := len(b) - 1; i >= 0 && n > 0; i, n = i-1, n-8 {
		if n >= 8 {
			b[i] = 0
		} else {
			b[i] &^= 1<<n - 1
		}
	}
}

// keyOfEntry converts the match of an entry to Thrift's types.
func keyOfEntry(t *bmv2json.Table, e *target.TableEntry) (out idl.MatchKey) {
	for i, k := range t.Keys {
		m, p := e.Match[i], idl.MatchParam{}
		switch k.Kind {
		case bmv2json.MatchExact:
			p.Type, p.Exact = idl.MatchTypeExact, &idl.ExactMatch{Key: m.Value}
		case bmv2json.MatchValid:
			p.Type = idl.MatchTypeValid
			p.Valid = &idl.ValidMatch{Key: len(m.Value) > 0 && m.Value[0] != 0}
		case bmv2json.MatchLPM:
			p.Type = idl.MatchTypeLPM
			p.LPM = &idl.LPMMatch{Key: m.Value, PrefixLength: int32(m.PrefixLen)}
		case bmv2json.MatchTernary, bmv2json.MatchOptional:
			p.Type = idl.MatchTypeTernary
			p.Ternary = &idl.TernaryMatch{Key: m.Value, Mask: m.Mask}
		default:
			p.Type = idl.MatchTypeRange
			p.Range = &idl.RangeMatch{Start: m.Value, End: m.Mask}
		}
		out = append(out, p)
	}
	return out
}

// optionsOf returns the priority of an entry as BMv2 counts it.
func optionsOf(t *bmv2json.Table, e *target.TableEntry) idl.EntryOptions {
	p := int32(-1)
	switch {
	case !needsPriority(t): // BMv2 reports the same value for a table without priorities.
	case e.IsConst: // Loading the program inverted the priorities of its const entries.
		largest := 0
		for _, c := range t.ConstEntries {
			largest = max(largest, c.Priority)
		}
		p = int32(largest + 1 - e.Priority)
	default:
		p = int32(maxPriority - e.Priority)
	}
	return idl.EntryOptions{Priority: &p}
}

// callOf converts an action and its parameters for a table. It returns an error if the table does
// not allow the action.
func callOf(t *bmv2json.Table, name string, data idl.ActionData) (*target.ActionCall, error) {
	a, _ := t.Action(name)
	if a == nil {
		return nil, refusal(idl.TableCodeInvalidActionName,
			"table %s has no action %q", t.Name, name)
	}
	if len(data) != len(a.Params) {
		return nil, refusal(idl.TableCodeBadActionData,
			"action %s takes %d parameters, not %d", name, len(a.Params), len(data))
	}
	call := &target.ActionCall{Action: name, Params: [][]byte{}}
	for i, p := range a.Params {
		v := normalized(data[i], p.Width)
		if v == nil {
			return nil, refusal(idl.TableCodeBadActionData,
				"parameter %s of action %s: %x is more than %d bits", p.Name, name, data[i],
				p.Width)
		}
		call.Params = append(call.Params, v)
	}
	return call, nil
}
