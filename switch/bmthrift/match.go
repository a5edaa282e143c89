package bmthrift

import (
	"bytes"
	"fmt"
	"math"

	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// maxPriority is BMv2's pivot between its priorities, of which the smallest wins, and those of
// P4Runtime, of which the largest does.
const maxPriority = math.MaxInt32

func bytesOf(width int) int { return (width + 7) / 8 }

// fits says whether b is a number of width bits in as many bytes as it takes.
func fits(b []byte, width int) bool {
	if len(b) != bytesOf(width) {
		return false
	}
	spare := len(b)*8 - width
	return spare == 0 || b[0]>>(8-spare) == 0
}

// normalized is the number b with width bits, however many zeros stand before it; nil if it is
// larger.
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

// matchOf reads the key of an entry of table t, and its priority.
func matchOf(t *bmv2json.Table, key standard.MatchKey,
	options *standard.EntryOptions) (*target.TableEntry, error) {
	bad := func(format string, args ...any) (*target.TableEntry, error) {
		return nil, tableError(standard.TableCode_BAD_MATCH_KEY, "the key for table %s: %s", t.Name,
			fmt.Sprintf(format, args...))
	}
	if len(t.Keys) == 0 {
		return nil, tableError(standard.TableCode_NO_TABLE_KEY,
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
	if options == nil || options.Priority == nil {
		e.Priority = maxPriority // 0
		return e, nil
	}
	if p := *options.Priority; p < 0 || p == maxPriority {
		return bad("its priority is at least 0 and less than %d, not %d", maxPriority, p)
	}
	e.Priority = int(maxPriority - *options.Priority)
	return e, nil
}

// needsPriority says whether entries of t have a priority in P4Runtime.
func needsPriority(t *bmv2json.Table) bool {
	for _, k := range t.Keys {
		switch k.Kind {
		case bmv2json.MatchTernary, bmv2json.MatchRange, bmv2json.MatchOptional:
			return true
		}
	}
	return false
}

func fieldMatchOf(k *bmv2json.Key, p *standard.MatchParam) (target.FieldMatch, error) {
	none := target.FieldMatch{}
	wrong := fmt.Errorf("it is matched %v, not %v", k.Kind, p.GetType())
	number := func(b []byte) error {
		if !fits(b, k.Width) {
			return fmt.Errorf("%x is not a number of %d bits in %d bytes", b, k.Width,
				bytesOf(k.Width))
		}
		return nil
	}
	switch k.Kind {
	case bmv2json.MatchExact:
		if p.GetType() != standard.MatchType_EXACT || p.Exact == nil {
			return none, wrong
		}
		return target.FieldMatch{Value: p.Exact.Key}, number(p.Exact.Key)
	case bmv2json.MatchValid:
		if p.GetType() != standard.MatchType_VALID || p.Valid == nil {
			return none, wrong
		}
		if p.Valid.Key {
			return target.FieldMatch{Value: []byte{1}}, nil
		}
		return target.FieldMatch{Value: []byte{0}}, nil
	case bmv2json.MatchLPM:
		if p.GetType() != standard.MatchType_LPM || p.Lpm == nil {
			return none, wrong
		}
		n := int(p.Lpm.PrefixLength)
		if n < 0 || n > k.Width {
			return none, fmt.Errorf("a prefix of %d bits of %d", n, k.Width)
		}
		if err := number(p.Lpm.Key); err != nil {
			return none, err
		}
		value := bytes.Clone(p.Lpm.Key)
		clearBelow(value, k.Width-n)
		return target.FieldMatch{Value: value, PrefixLen: n}, nil
	case bmv2json.MatchTernary, bmv2json.MatchOptional:
		if p.GetType() != standard.MatchType_TERNARY || p.Ternary == nil {
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
		if p.GetType() != standard.MatchType_RANGE || p.Range == nil {
			return none, wrong
		}
		if err := number(p.Range.Start); err != nil {
			return none, err
		}
		return target.FieldMatch{Value: p.Range.Start, Mask: p.Range.End_}, number(p.Range.End_)
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

// keyOfEntry describes the match of an entry.
func keyOfEntry(t *bmv2json.Table, e *target.TableEntry) standard.MatchKey {
	out := standard.MatchKey{}
	for i, k := range t.Keys {
		m, p := e.Match[i], &standard.MatchParam{}
		switch k.Kind {
		case bmv2json.MatchExact:
			p.Type, p.Exact = standard.MatchType_EXACT, &standard.ExactMatch{Key: m.Value}
		case bmv2json.MatchValid:
			p.Type = standard.MatchType_VALID
			p.Valid = &standard.ValidMatch{Key: len(m.Value) > 0 && m.Value[0] != 0}
		case bmv2json.MatchLPM:
			p.Type = standard.MatchType_LPM
			p.Lpm = &standard.LPMMatch{Key: m.Value, PrefixLength: int32(m.PrefixLen)}
		case bmv2json.MatchTernary, bmv2json.MatchOptional:
			p.Type = standard.MatchType_TERNARY
			p.Ternary = &standard.TernaryMatch{Key: m.Value, Mask: m.Mask}
		default:
			p.Type = standard.MatchType_RANGE
			p.Range = &standard.RangeMatch{Start: m.Value, End_: m.Mask}
		}
		out = append(out, p)
	}
	return out
}

// optionsOf is the priority of an entry as BMv2 counts it.
func optionsOf(t *bmv2json.Table, e *target.TableEntry) *standard.EntryOptions {
	p := int32(-1)
	switch {
	case !needsPriority(t): // as BMv2 says it
	case e.IsConst: // the program's numbers, turned round when it was loaded
		largest := 0
		for _, c := range t.ConstEntries {
			largest = max(largest, c.Priority)
		}
		p = int32(largest + 1 - e.Priority)
	default:
		p = int32(maxPriority - e.Priority)
	}
	return &standard.EntryOptions{Priority: &p}
}

// callOf reads an action with its parameters for a table with these actions.
func callOf(t *bmv2json.Table, name string, data standard.ActionData) (*target.ActionCall, error) {
	a, _ := t.Action(name)
	if a == nil {
		return nil, tableError(standard.TableCode_INVALID_ACTION_NAME,
			"table %s has no action %q", t.Name, name)
	}
	if len(data) != len(a.Params) {
		return nil, tableError(standard.TableCode_BAD_ACTION_DATA,
			"action %s takes %d parameters, not %d", name, len(a.Params), len(data))
	}
	call := &target.ActionCall{Action: name, Params: [][]byte{}}
	for i, p := range a.Params {
		v := normalized(data[i], p.Width)
		if v == nil {
			return nil, tableError(standard.TableCode_BAD_ACTION_DATA,
				"parameter %s of action %s: %x is more than %d bits", p.Name, name, data[i],
				p.Width)
		}
		call.Params = append(call.Params, v)
	}
	return call, nil
}
