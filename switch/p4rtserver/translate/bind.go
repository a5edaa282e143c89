package translate

import (
	"errors"
	"fmt"
	"slices"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Bind checks that info describes prog, and combines the two to a Schema. The error names
// everything that differs. The usual reason is that they come from different compilations. The list
// of differences then shows from which programs they come.
func Bind(info *p4cfg.P4Info, prog *bmv2json.Program) (*Schema, error) {
	b := &binder{
		Schema: &Schema{
			info: info, Program: prog,
			Tables: map[uint32]*Table{}, actions: map[uint32]*action{},
			actionByName: map[string]*action{}, ActionProfiles: map[uint32]*ActionProfile{},
			Counters: map[uint32]*array{}, directCounters: map[uint32]*Table{},
			Meters: map[uint32]*array{}, directMeters: map[uint32]*Table{},
			Registers: map[uint32]*Register{}, ValueSets: map[uint32]*valueSet{},
			Digests: map[uint32]*DigestType{}, DigestByName: map[string]*DigestType{},
			LeftOut: map[uint32]string{},
			Ports:   9,
		},
		names: map[uint32]string{},
	}
	if f := prog.FieldNamed("standard_metadata", "egress_port"); !f.IsZero() {
		b.Ports = f.Width()
	}
	if f := prog.FieldNamed("psa_egress_parser_input_metadata", "egress_port"); !f.IsZero() {
		b.Ports = f.Width()
	}
	b.bindActions()
	b.bindProfiles()
	b.bindDirectResources()
	b.bindTables()
	b.bindArrays()
	b.bindRegisters()
	b.bindValueSets()
	b.bindDigests()
	b.bindPacketHeaders()
	for _, e := range info.Externs {
		b.differ("extern %s is of a type that this target does not have", e.ExternTypeName)
	}
	b.findUnnamed()
	if len(b.differences) > 0 {
		return nil, errors.Join(b.differences...)
	}
	return b.Schema, nil
}

type binder struct {
	*Schema
	names       map[uint32]string // names of all objects, by id
	differences []error
	counterOf   map[uint32]*p4cfg.DirectCounter
	meterOf     map[uint32]*p4cfg.DirectMeter
}

func (b *binder) differ(format string, args ...any) {
	const most = 20
	switch len(b.differences) {
	case most:
		b.differences = append(b.differences, errors.New("and more"))
	case most + 1:
	default:
		b.differences = append(b.differences, fmt.Errorf(format, args...))
	}
}

// preamble checks the id of an object and returns the object's name, or "" if the object is
// unusable.
func (b *binder) preamble(what string, p *p4cfg.Preamble) string {
	if p.GetId() == 0 || p.GetName() == "" {
		b.differ("a %s in the P4Info has no id or no name", what)
		return ""
	}
	if other, taken := b.names[p.Id]; taken {
		b.differ("%s %s has the id %d, which is %s's", what, p.Name, p.Id, other)
		return ""
	}
	b.names[p.Id] = p.Name
	return p.Name
}

// untranslated refuses @p4runtime_translation. Its values are the controller's, and this server has
// no mapping from them to the program's values.
func (b *binder) untranslated(where string, t *p4cfg.P4NamedType) {
	if t == nil {
		return
	}
	if tr := b.info.GetTypeInfo().GetNewTypes()[t.Name].GetTranslatedType(); tr != nil {
		b.differ(
			"%s has type %s with @p4runtime_translation(%q), which this target does not support",
			where, t.Name, tr.Uri)
	}
}

func (b *binder) bindActions() {
	for _, info := range b.info.Actions {
		name := b.preamble("action", info.Preamble)
		if name == "" {
			continue
		}
		a := &action{id: info.Preamble.Id, name: name, byID: map[uint32]int{}}
		for i, p := range info.Params {
			b.untranslated(fmt.Sprintf("parameter %s of action %s", p.Name, name), p.TypeName)
			if _, twice := a.byID[p.Id]; twice {
				b.differ("action %s has two parameters with id %d", name, p.Id)
			}
			a.params = append(a.params, param{id: p.Id, name: p.Name, width: int(p.Bitwidth)})
			a.byID[p.Id] = i
		}
		b.actions[a.id] = a
		b.actionByName[name] = a
	}
}

// sameAction checks that an action of the P4Info is the same as the program's.
func (b *binder) sameAction(table string, a *action, prog *bmv2json.Action) {
	if len(a.params) != len(prog.Params) {
		b.differ("action %s of table %s has %d parameters in the P4Info and %d in the program",
			a.name, table, len(a.params), len(prog.Params))
		return
	}
	for i, p := range a.params {
		if q := prog.Params[i]; p.name != q.Name || p.width != q.Width {
			b.differ(
				"parameter %d of action %s is %s with %d bits in the P4Info and %s with %d bits in the program", i+1, a.name, p.name, p.width, q.Name, q.Width)
		}
	}
}

func (b *binder) bindProfiles() {
	for _, info := range b.info.ActionProfiles {
		name := b.preamble("action profile", info.Preamble)
		if name == "" {
			continue
		}
		prog := b.Program.ActionProfile(name)
		if prog == nil && !slices.ContainsFunc(b.info.Tables, func(t *p4cfg.Table) bool {
			return slices.Contains(info.TableIds, t.GetPreamble().GetId()) &&
				b.Program.Table(t.Preamble.Name) != nil
		}) {
			// no remaining table uses the action profile
			b.LeftOut[info.Preamble.Id] = "action profile " + name
			continue
		}
		if prog == nil {
			b.differ("action profile %s of the P4Info is not in the program", name)
			continue
		}
		if info.WithSelector != (prog.Selector != nil) {
			b.differ(
				"action profile %s: the P4Info and the program disagree on whether it is a selector", name)
		}
		if info.Size != int64(prog.MaxSize) {
			b.differ("action profile %s has size %d in the P4Info and %d in the program", name,
				info.Size, prog.MaxSize)
		}
		p := &ActionProfile{ID: info.Preamble.Id, Name: name, Info: info}
		b.ActionProfiles[p.ID] = p
		b.ProfileOrder = append(b.ProfileOrder, p)
	}
}

func (b *binder) bindDirectResources() {
	b.counterOf, b.meterOf = map[uint32]*p4cfg.DirectCounter{}, map[uint32]*p4cfg.DirectMeter{}
	for _, c := range b.info.DirectCounters {
		if b.preamble("direct counter", c.Preamble) != "" {
			b.counterOf[c.DirectTableId] = c
		}
	}
	for _, m := range b.info.DirectMeters {
		if b.preamble("direct meter", m.Preamble) != "" {
			b.meterOf[m.DirectTableId] = m
		}
	}
}

// matchTypes maps each match kind in the JSON to the P4Info's match type.
var matchTypes = map[bmv2json.MatchKind]p4cfg.MatchField_MatchType{
	bmv2json.MatchExact:    p4cfg.MatchField_EXACT,
	bmv2json.MatchValid:    p4cfg.MatchField_EXACT,
	bmv2json.MatchLPM:      p4cfg.MatchField_LPM,
	bmv2json.MatchTernary:  p4cfg.MatchField_TERNARY,
	bmv2json.MatchRange:    p4cfg.MatchField_RANGE,
	bmv2json.MatchOptional: p4cfg.MatchField_OPTIONAL,
}

func (b *binder) bindTables() {
	for _, info := range b.info.Tables {
		name := b.preamble("table", info.Preamble)
		if name == "" {
			continue
		}
		prog := b.Program.Table(name)
		if prog == nil {
			b.LeftOut[info.Preamble.Id] = "table " + name
			continue
		}
		t := &Table{
			ID: info.Preamble.Id, Name: name, Info: info, prog: prog,
			byField: map[uint32]int{}, refs: map[uint32]*p4cfg.ActionRef{},
			Counter: b.counterOf[info.Preamble.Id], Meter: b.meterOf[info.Preamble.Id],
		}
		// bindKeys does not compare table sizes, because p4c itself writes different sizes for
		// tables with const entries.
		b.bindKeys(t)
		b.bindTableActions(t)
		b.bindImplementation(t)
		if t.Counter != nil && !prog.WithCounters {
			b.differ(
				"direct counter %s is in the P4Info, but the program's table %s counts nothing",
				t.Counter.Preamble.Name, name)
		}
		if t.Counter == nil && prog.DirectCounter != nil {
			b.differ("table %s has direct counters in the program, but not in the P4Info", name)
		}
		if (t.Meter != nil) != (prog.DirectMeter != nil) {
			b.differ(
				"table %s: the P4Info and the program disagree on whether it has a direct meter",
				name)
		}
		b.Tables[t.ID] = t
		b.TableOrder = append(b.TableOrder, t)
		if t.Counter != nil {
			b.directCounters[t.Counter.Preamble.Id] = t
		}
		if t.Meter != nil {
			b.directMeters[t.Meter.Preamble.Id] = t
		}
	}
}

func (b *binder) bindKeys(t *Table) {
	if len(t.Info.MatchFields) != len(t.prog.Keys) {
		b.differ("the key of table %s has %d fields in the P4Info and %d in the program", t.Name,
			len(t.Info.MatchFields), len(t.prog.Keys))
		return
	}
	for i, f := range t.Info.MatchFields {
		prog := t.prog.Keys[i]
		b.untranslated(fmt.Sprintf("key %s of table %s", f.Name, t.Name), f.TypeName)
		if prog.Name != "" && f.Name != prog.Name {
			b.differ("field %d of the key of table %s is %s in the P4Info and %s in the program",
				i+1, t.Name, f.Name, prog.Name)
		}
		// In the P4Info, p4c writes no width for errors, and for enums without a representation.
		if int(f.Bitwidth) != prog.Width && f.Bitwidth != 0 {
			b.differ("key %s of table %s has %d bits in the P4Info and %d in the program", f.Name,
				t.Name, f.Bitwidth, prog.Width)
		}
		// Some versions of p4c write "ternary" for an optional key. Both kinds of matches have the
		// same form.
		asTernary := f.GetMatchType() == p4cfg.MatchField_OPTIONAL &&
			prog.Kind == bmv2json.MatchTernary
		if f.GetMatchType() != matchTypes[prog.Kind] && !asTernary {
			b.differ("key %s of table %s is matched %v in the P4Info and %v in the program", f.Name,
				t.Name, f.GetMatchType(), prog.Kind)
		}
		if _, twice := t.byField[f.Id]; twice {
			b.differ("table %s has two keys with id %d", t.Name, f.Id)
		}
		switch f.GetMatchType() {
		case p4cfg.MatchField_TERNARY, p4cfg.MatchField_RANGE, p4cfg.MatchField_OPTIONAL:
			t.NeedPriority = true
		}
		t.byField[f.Id] = i
		t.Keys = append(t.Keys, key{id: f.Id, name: f.Name, width: prog.Width,
			kind: f.GetMatchType()})
	}
}

func (b *binder) bindTableActions(t *Table) {
	for _, ref := range t.Info.ActionRefs {
		a := b.actions[ref.Id]
		if a == nil {
			b.differ("table %s refers to action id %d, which the P4Info does not have", t.Name,
				ref.Id)
			continue
		}
		prog, _ := t.prog.Action(a.name)
		if prog == nil {
			b.differ("action %s of table %s is in the P4Info but not in the program", a.name,
				t.Name)
			continue
		}
		b.sameAction(t.Name, a, prog)
		t.refs[ref.Id] = ref
	}
	for _, prog := range t.prog.Actions {
		if a := b.actionByName[prog.Name]; a == nil || t.refs[a.id] == nil {
			b.differ("action %s of table %s is in the program but not in the P4Info", prog.Name,
				t.Name)
		}
	}
	if id := t.Info.ConstDefaultActionId; id != 0 && t.refs[id] == nil {
		b.differ("the default action of table %s has id %d, which is not among its actions", t.Name,
			id)
	}
}

func (b *binder) bindImplementation(t *Table) {
	id := t.Info.ImplementationId
	switch {
	case id == 0 && t.prog.ActionProfile != nil:
		b.differ(
			"table %s is implemented by action profile %s in the program, but not in the P4Info",
			t.Name, t.prog.ActionProfile.Name)
	case id != 0 && (t.prog.ActionProfile == nil || b.names[id] != t.prog.ActionProfile.Name):
		b.differ("table %s is implemented by %s (id %d) in the P4Info, but not in the program",
			t.Name, b.names[id], id)
	case id != 0 && b.ActionProfiles[id] != nil:
		t.ActionProfile = b.ActionProfiles[id]
		t.ActionProfile.tables = append(t.ActionProfile.tables, t)
	}
}

func (b *binder) bindArrays() {
	for _, c := range b.info.Counters {
		name := b.preamble("counter", c.Preamble)
		if name == "" {
			continue
		}
		b.untranslated("the index of counter "+name, c.IndexTypeName)
		prog := b.Program.Counter(name)
		if prog == nil || prog.Direct {
			b.differ("counter %s of the P4Info is not in the program", name)
			continue
		}
		if c.Size != int64(prog.Size) {
			b.differ("counter %s has %d cells in the P4Info and %d in the program", name, c.Size,
				prog.Size)
		}
		a := &array{ID: c.Preamble.Id, Name: name, Size: prog.Size}
		b.Counters[a.ID] = a
		b.CounterOrder = append(b.CounterOrder, a)
	}
	for _, m := range b.info.Meters {
		name := b.preamble("meter", m.Preamble)
		if name == "" {
			continue
		}
		b.untranslated("the index of meter "+name, m.IndexTypeName)
		prog := b.Program.Meter(name)
		if prog == nil || prog.Direct {
			b.differ("meter %s of the P4Info is not in the program", name)
			continue
		}
		if m.Size != int64(prog.Size) {
			b.differ("meter %s has %d cells in the P4Info and %d in the program", name, m.Size,
				prog.Size)
		}
		if (m.Spec.GetUnit() == p4cfg.MeterSpec_BYTES) != prog.Bytes {
			b.differ(
				"meter %s: the P4Info and the program disagree on whether it counts bytes or packets", name)
		}
		a := &array{ID: m.Preamble.Id, Name: name, Size: prog.Size, Spec: m.Spec}
		b.Meters[a.ID] = a
		b.MeterOrder = append(b.MeterOrder, a)
	}
}

func (b *binder) bindRegisters() {
	for _, r := range b.info.Registers {
		name := b.preamble("register", r.Preamble)
		if name == "" {
			continue
		}
		b.untranslated("the index of register "+name, r.IndexTypeName)
		prog := b.Program.Register(name)
		if prog == nil {
			b.differ("register %s of the P4Info is not in the program", name)
			continue
		}
		if int(r.Size) != prog.Size {
			b.differ("register %s has %d cells in the P4Info and %d in the program", name, r.Size,
				prog.Size)
		}
		typ, err := resolveType(b.info.GetTypeInfo(), r.TypeSpec)
		if err != nil {
			b.differ("register %s: %v", name, err)
			continue
		}
		if w := typ.widths(nil); len(w) != 1 || w[0] != prog.Width {
			b.differ("a cell of register %s has %v bits in the P4Info and %d in the program", name,
				w, prog.Width)
			continue
		}
		reg := &Register{ID: r.Preamble.Id, Name: name, Size: prog.Size, Type: typ}
		b.Registers[reg.ID] = reg
		b.RegisterOrder = append(b.RegisterOrder, reg)
	}
}

func (b *binder) bindValueSets() {
	for _, v := range b.info.ValueSets {
		name := b.preamble("value set", v.Preamble)
		if name == "" {
			continue
		}
		prog := b.Program.ValueSet(name)
		if prog == nil {
			b.LeftOut[v.Preamble.Id] = "value set " + name
			continue
		}
		if int(v.Size) != prog.MaxSize {
			b.differ("value set %s has size %d in the P4Info and %d in the program", name, v.Size,
				prog.MaxSize)
		}
		vs := &valueSet{ID: v.Preamble.Id, Name: name, Size: prog.MaxSize}
		total := 0
		for _, f := range v.Match {
			b.untranslated(fmt.Sprintf("field %s of value set %s", f.Name, name), f.TypeName)
			vs.Keys = append(vs.Keys, key{id: f.Id, name: f.Name, width: int(f.Bitwidth),
				kind: f.GetMatchType()})
			total += int(f.Bitwidth)
		}
		if total != prog.Width {
			b.differ("a member of value set %s has %d bits in the P4Info and %d in the program",
				name, total, prog.Width)
		}
		b.ValueSets[vs.ID] = vs
		b.ValueSetOrder = append(b.ValueSetOrder, vs)
	}
}

func (b *binder) bindDigests() {
	taken := map[*bmv2json.LearnList]bool{}
	for _, d := range b.info.Digests {
		taken[b.Program.LearnListNamed(d.GetPreamble().GetName())] = true
	}
	for i, d := range b.info.Digests {
		name := b.preamble("digest", d.Preamble)
		if name == "" {
			continue
		}
		prog := b.Program.LearnListNamed(name)
		if prog == nil && len(b.info.Digests) == len(b.Program.LearnLists) {
			// p4c numbers digests of tuples differently in its two outputs.
			prog = b.Program.LearnLists[i]
		}
		typ, err := resolveType(b.info.GetTypeInfo(), d.TypeSpec)
		if err != nil {
			b.differ("digest %s: %v", name, err)
			continue
		}
		w := typ.widths(nil)
		alike := func(l *bmv2json.LearnList) bool {
			return slices.EqualFunc(w, l.Widths, func(w, p int) bool { return w == p || w == 0 })
		}
		// The program has fewer lists than the P4Info. It lacks this list, unless an unnamed list
		// has the same widths.
		if prog == nil {
			if i := slices.IndexFunc(b.Program.LearnLists,
				func(l *bmv2json.LearnList) bool { return !taken[l] && alike(l) }); i >= 0 {
				prog = b.Program.LearnLists[i]
				taken[prog] = true
			}
		}
		if prog == nil {
			b.LeftOut[d.Preamble.Id] = "digest " + name
			continue
		}
		if !alike(prog) {
			b.differ("digest %s has fields of %v bits in the P4Info and of %v bits in the program",
				name, w, prog.Widths)
			continue
		}
		dt := &DigestType{ID: d.Preamble.Id, Name: name, Type: typ}
		b.Digests[dt.ID] = dt
		b.DigestOrder = append(b.DigestOrder, dt)
		b.DigestByName[prog.Name] = dt
	}
}

func (b *binder) bindPacketHeaders() {
	for _, m := range b.info.ControllerPacketMetadata {
		name := b.preamble("packet header", m.Preamble)
		if name == "" {
			continue
		}
		h := &packetHeader{byID: map[uint32]int{}}
		total := 0
		for i, f := range m.Metadata {
			b.untranslated(fmt.Sprintf("field %s of header %s", f.Name, name), f.TypeName)
			padding := slices.ContainsFunc(f.Annotations,
				func(a string) bool { return a == "@padding" || a == "@padding()" })
			h.fields = append(h.fields, packetField{id: f.Id, name: f.Name, width: int(f.Bitwidth),
				padding: padding})
			h.byID[f.Id] = i
			total += int(f.Bitwidth)
		}
		if total%8 != 0 {
			b.differ("header %s has %d bits, which are no whole bytes", name, total)
		}
		h.Bytes = total / 8
		switch name {
		case "packet_in":
			b.PacketIn = h
		case "packet_out":
			b.PacketOut = h
		default:
			b.differ("header %s is neither packet_in nor packet_out", name)
		}
	}
}

// findUnnamed reports the program's objects that the P4Info lacks. It does not report tables
// without keys, because the compiler creates them. A table that is hidden from the control plane
// can only have const entries.
func (b *binder) findUnnamed() {
	named := map[string]bool{}
	for _, name := range b.names {
		named[name] = true
	}
	missing := func(what, name string) {
		if !named[name] {
			b.differ("%s %s of the program is not in the P4Info", what, name)
		}
	}
	for _, t := range b.Program.Tables() {
		if len(t.Keys) > 0 && len(t.ConstEntries) == 0 {
			missing("table", t.Name)
		}
	}
	for _, r := range b.Program.Registers {
		missing("register", r.Name)
	}
	for _, c := range b.Program.Counters {
		if !c.Direct {
			missing("counter", c.Name)
		}
	}
	for _, m := range b.Program.Meters {
		if !m.Direct {
			missing("meter", m.Name)
		}
	}
	for _, p := range b.Program.ActionProfiles() {
		missing("action profile", p.Name)
	}
	for _, v := range b.Program.ValueSets {
		missing("value set", v.Name)
	}
}
