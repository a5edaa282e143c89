package p4rt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// Entry is a table entry that uses names instead of ids. Encode converts it to the protobuf, and
// Decode converts it back.
type Entry struct {
	Table  string
	Match  Match  // empty in a default entry
	Action string // "" in a default entry stands for the program's own default
	Params Params
	// if several entries match, the highest priority wins; above 0 in tables with a ternary, range
	// or optional key, otherwise 0
	Priority int32
	Default  bool // the entry is the table's default, for packets that no other entry matches
}

// Match holds the keys that an entry matches, by the names of the table's match fields. A field
// that is left out matches anything, if its kind of match allows that.
type Match map[string]Key

// Params are an action's parameters by name. A value may have any type that MakeValue accepts.
// Decode returns values of type Value.
type Params map[string]any

// Key is the match on one field. Its kind must be the kind of the field.
type Key struct {
	Kind   configv1.MatchField_MatchType
	Value  any // the value; in a range match, the lower bound
	Mask   any // the mask of a ternary match; in a range match, the upper bound
	Prefix int // prefix length in bits, in an LPM match
}

// Exact returns a match on one value.
func Exact(value any) Key { return Key{Kind: configv1.MatchField_EXACT, Value: value} }

// LPM returns a match on values whose first prefix bits equal those of value.
func LPM(value any, prefix int) Key {
	return Key{Kind: configv1.MatchField_LPM, Value: value, Prefix: prefix}
}

// Ternary returns a match on values that equal value in the bits that are set in mask.
func Ternary(value, mask any) Key {
	return Key{Kind: configv1.MatchField_TERNARY, Value: value, Mask: mask}
}

// Range returns a match on values from low to high, inclusive.
func Range(low, high any) Key { return Key{Kind: configv1.MatchField_RANGE, Value: low, Mask: high} }

// Optional returns a match on one value. A field that is left out of the Match matches any value.
func Optional(value any) Key { return Key{Kind: configv1.MatchField_OPTIONAL, Value: value} }

// Encode makes the protobuf of an entry. Errors name the table and the field or parameter.
func (i *Info) Encode(e Entry) (*v1.TableEntry, error) {
	t, err := i.tables.find(e.Table)
	if err != nil {
		return nil, err
	}
	out := &v1.TableEntry{TableId: t.Preamble.Id, IsDefaultAction: e.Default}
	fail := func(err error) (*v1.TableEntry, error) {
		return nil, fmt.Errorf("an entry of table %s: %w", alias(t.Preamble), err)
	}
	if e.Default && (len(e.Match) > 0 || e.Priority != 0) {
		return fail(fmt.Errorf("a default entry has neither a match nor a priority"))
	}
	if out.Match, err = encodeMatch(t, e); err != nil {
		return fail(err)
	}
	if err := checkPriority(t, e); err != nil {
		return fail(err)
	}
	out.Priority = e.Priority
	if e.Action == "" {
		if !e.Default {
			return fail(fmt.Errorf("it has no action"))
		}
		return out, nil
	}
	a, err := i.encodeAction(t, e)
	if err != nil {
		return fail(err)
	}
	out.Action = &v1.TableAction{Type: &v1.TableAction_Action{Action: a}}
	return out, nil
}

func checkPriority(t *configv1.Table, e Entry) error {
	needs := slices.ContainsFunc(t.MatchFields, func(f *configv1.MatchField) bool {
		switch f.GetMatchType() {
		case configv1.MatchField_TERNARY, configv1.MatchField_RANGE, configv1.MatchField_OPTIONAL:
			return true
		}
		return false
	})
	switch {
	case e.Default:
		return nil
	case needs && e.Priority <= 0:
		return fmt.Errorf("the table has ternary, range or optional keys, so its entries need a priority above 0")
	case !needs && e.Priority != 0:
		return fmt.Errorf("the table has only exact and lpm keys, so its entries have no priority")
	}
	return nil
}

func encodeMatch(t *configv1.Table, e Entry) ([]*v1.FieldMatch, error) {
	if e.Default {
		return nil, nil
	}
	left := maps.Clone(e.Match)
	var out []*v1.FieldMatch
	for _, f := range t.MatchFields {
		k, ok := left[f.Name]
		delete(left, f.Name)
		if !ok {
			if f.GetMatchType() == configv1.MatchField_EXACT {
				return nil, fmt.Errorf("the exact match field %s is missing", f.Name)
			}
			continue
		}
		m, err := encodeKey(f, k)
		if err != nil {
			return nil, fmt.Errorf("match field %s: %w", f.Name, err)
		}
		if m != nil {
			out = append(out, m)
		}
	}
	if len(left) > 0 {
		var have []string
		for _, f := range t.MatchFields {
			have = append(have, f.Name)
		}
		return nil, fmt.Errorf("it has no match field %s; it has: %s", strings.Join(sorted(left), ", "), strings.Join(have, ", "))
	}
	return out, nil
}

// encodeKey encodes one field's match. It returns nil if the match accepts anything, which
// P4Runtime expresses by leaving the field out (section 9.1.1).
func encodeKey(f *configv1.MatchField, k Key) (*v1.FieldMatch, error) {
	if k.Kind != f.GetMatchType() {
		return nil, fmt.Errorf("a match of kind %v given for a field of kind %v", k.Kind, f.GetMatchType())
	}
	width := int(f.Bitwidth)
	v, err := MakeValue(k.Value, width)
	if err != nil {
		return nil, err
	}
	out := &v1.FieldMatch{FieldId: f.Id}
	switch k.Kind {
	case configv1.MatchField_EXACT:
		out.FieldMatchType = &v1.FieldMatch_Exact_{Exact: &v1.FieldMatch_Exact{Value: v}}
	case configv1.MatchField_OPTIONAL:
		out.FieldMatchType = &v1.FieldMatch_Optional_{Optional: &v1.FieldMatch_Optional{Value: v}}
	case configv1.MatchField_LPM:
		if k.Prefix < 0 || k.Prefix > width {
			return nil, fmt.Errorf("a prefix of %d bits in a field of %d", k.Prefix, width)
		}
		if k.Prefix == 0 {
			return nil, nil
		}
		out.FieldMatchType = &v1.FieldMatch_Lpm{Lpm: &v1.FieldMatch_LPM{Value: v.mask(k.Prefix, width),
			PrefixLen: int32(k.Prefix)}}
	case configv1.MatchField_TERNARY:
		mask, err := MakeValue(k.Mask, width)
		if err != nil {
			return nil, fmt.Errorf("mask: %w", err)
		}
		if mask.Bits() == 0 {
			return nil, nil
		}
		out.FieldMatchType = &v1.FieldMatch_Ternary_{Ternary: &v1.FieldMatch_Ternary{Value: v.and(mask, width),
			Mask: mask}}
	case configv1.MatchField_RANGE:
		high, err := MakeValue(k.Mask, width)
		if err != nil {
			return nil, fmt.Errorf("high bound: %w", err)
		}
		n := (width + 7) / 8
		if string(v.padded(n)) > string(high.padded(n)) {
			return nil, fmt.Errorf("the range's low bound %v is above its high bound %v", v, high)
		}
		out.FieldMatchType = &v1.FieldMatch_Range_{Range: &v1.FieldMatch_Range{Low: v, High: high}}
	default:
		return nil, fmt.Errorf("matches of kind %v are not supported", k.Kind)
	}
	return out, nil
}

func (v Value) and(mask Value, width int) Value {
	n := (width + 7) / 8
	a, b := v.padded(n), mask.padded(n)
	for i := range a {
		a[i] &= b[i]
	}
	return Value(a).Canonical()
}

func (i *Info) encodeAction(t *configv1.Table, e Entry) (*v1.Action, error) {
	a, err := i.actions.find(e.Action)
	if err != nil {
		return nil, err
	}
	ref := slices.IndexFunc(t.ActionRefs, func(r *configv1.ActionRef) bool { return r.Id == a.Preamble.Id })
	if ref < 0 {
		return nil, fmt.Errorf("it has no action %s", e.Action)
	}
	switch scope := t.ActionRefs[ref].Scope; {
	case scope == configv1.ActionRef_DEFAULT_ONLY && !e.Default:
		return nil, fmt.Errorf("action %s is for the default entry only", e.Action)
	case scope == configv1.ActionRef_TABLE_ONLY && e.Default:
		return nil, fmt.Errorf("action %s is not for the default entry", e.Action)
	}
	out := &v1.Action{ActionId: a.Preamble.Id}
	left := maps.Clone(e.Params)
	for _, p := range a.Params {
		x, ok := left[p.Name]
		delete(left, p.Name)
		if !ok {
			return nil, fmt.Errorf("action %s: the parameter %s is missing", e.Action, p.Name)
		}
		v, err := MakeValue(x, int(p.Bitwidth))
		if err != nil {
			return nil, fmt.Errorf("action %s, parameter %s: %w", e.Action, p.Name, err)
		}
		out.Params = append(out.Params, &v1.Action_Param{ParamId: p.Id, Value: v})
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("action %s has no parameter %s", e.Action, strings.Join(sorted(left), ", "))
	}
	return out, nil
}

// Decode converts an entry that was read from a target back to names. It refuses entries of
// indirect tables (action profiles).
func (i *Info) Decode(te *v1.TableEntry) (Entry, error) {
	t, ok := i.tables.byID[te.GetTableId()]
	if !ok {
		return Entry{}, fmt.Errorf("an entry of a table with id %d, which the program does not have", te.GetTableId())
	}
	e := Entry{Table: alias(t.Preamble), Match: Match{}, Priority: te.Priority, Default: te.IsDefaultAction}
	for _, m := range te.Match {
		f := slices.IndexFunc(t.MatchFields, func(f *configv1.MatchField) bool { return f.Id == m.FieldId })
		if f < 0 {
			return Entry{}, fmt.Errorf("an entry of table %s with match field %d, which it does not have", e.Table, m.FieldId)
		}
		name := t.MatchFields[f].Name
		switch m := m.FieldMatchType.(type) {
		case *v1.FieldMatch_Exact_:
			e.Match[name] = Exact(Value(m.Exact.Value))
		case *v1.FieldMatch_Lpm:
			e.Match[name] = LPM(Value(m.Lpm.Value), int(m.Lpm.PrefixLen))
		case *v1.FieldMatch_Ternary_:
			e.Match[name] = Ternary(Value(m.Ternary.Value), Value(m.Ternary.Mask))
		case *v1.FieldMatch_Range_:
			e.Match[name] = Range(Value(m.Range.Low), Value(m.Range.High))
		case *v1.FieldMatch_Optional_:
			e.Match[name] = Optional(Value(m.Optional.Value))
		default:
			return Entry{}, fmt.Errorf("an entry of table %s with a match of an unknown kind %T", e.Table, m)
		}
	}
	if te.Action == nil {
		return e, nil
	}
	call := te.Action.GetAction()
	if call == nil {
		return Entry{}, fmt.Errorf("an entry of table %s whose action is in an action profile", e.Table)
	}
	a, ok := i.actions.byID[call.ActionId]
	if !ok {
		return Entry{}, fmt.Errorf("an entry of table %s with action %d, which the program does not have", e.Table, call.ActionId)
	}
	e.Action, e.Params = alias(a.Preamble), Params{}
	for _, p := range call.Params {
		d := slices.IndexFunc(a.Params, func(d *configv1.Action_Param) bool { return d.Id == p.ParamId })
		if d < 0 {
			return Entry{}, fmt.Errorf("an entry of table %s with parameter %d of %s, which it does not have", e.Table, p.ParamId, e.Action)
		}
		e.Params[a.Params[d].Name] = Value(p.Value)
	}
	return e, nil
}

// Exact returns the value of the entry's exact match on a field, or 0 if the entry has no such
// match.
func (e Entry) Exact(field string) Value {
	v, _ := e.Match[field].Value.(Value)
	return v
}

// Param returns a parameter of a decoded entry, or 0 if the entry has no parameter of that name.
func (e Entry) Param(name string) Value {
	v, _ := e.Params[name].(Value)
	return v
}

// String formats the entry for people: "ipv4_lpm ipv4_dst=10.0.0.1/32 ->
// forward(dst_mac=02:00:00:00:00:01, port=0x3)".
func (e Entry) String() string {
	var b strings.Builder
	b.WriteString(e.Table)
	if e.Default {
		b.WriteString(" default")
	}
	for _, name := range sorted(e.Match) {
		k := e.Match[name]
		fmt.Fprintf(&b, " %s=%v", name, show(name, k.Value))
		switch k.Kind {
		case configv1.MatchField_LPM:
			fmt.Fprintf(&b, "/%d", k.Prefix)
		case configv1.MatchField_TERNARY:
			fmt.Fprintf(&b, "&%v", show(name, k.Mask))
		case configv1.MatchField_RANGE:
			fmt.Fprintf(&b, "..%v", show(name, k.Mask))
		}
	}
	if e.Priority != 0 {
		fmt.Fprintf(&b, " priority=%d", e.Priority)
	}
	if e.Action != "" {
		fmt.Fprintf(&b, " -> %s(", e.Action)
		for n, name := range sorted(e.Params) {
			if n > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s=%v", name, show(name, e.Params[name]))
		}
		b.WriteString(")")
	}
	return b.String()
}

// show formats a value by the kind that its name implies.
func show(name string, x any) any {
	v, ok := x.(Value)
	switch {
	case !ok:
		return x
	case strings.Contains(name, "mac") && v.Bits() <= 48:
		b := v.padded(6)
		return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
	case (strings.Contains(name, "addr") || strings.Contains(name, "ipv4")) && v.Bits() <= 32:
		return v.Addr()
	}
	return v
}
