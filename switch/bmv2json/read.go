package bmv2json

import (
	"fmt"
	"math/big"
	"os"

	"github.com/netcraq/netcraq/api/gunzip"
)

// The version of the JSON format that this package supports. The reader accepts newer minor
// versions, because only a new major version is incompatible.
const (
	supportedMajor = 2
	// maxWidth bounds the width of a field, register or constant in bits. p4c itself refuses fields
	// over 2,048 bits. Varbit fields may be larger.
	maxWidth = 1 << 16
	// maxArray bounds the number of cells of a register, counter or meter array. BMv2 would try to
	// allocate any requested size.
	maxArray = 1 << 27
	// defaultSetSize is the capacity of a parser value set for which the program declares no
	// capacity.
	defaultSetSize = 256
	// maxPriority bounds the BMv2 priority of a const entry.
	maxPriority = 1<<31 - 1
)

// ReadFile reads a program from a file. The file may be compressed with gzip.
func ReadFile(name string) (*Program, error) {
	data, err := Text(name)
	if err != nil {
		return nil, err
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// Text returns the JSON from a file. The file may be compressed with gzip.
func Text(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err == nil {
		data, err = gunzip.Bytes(data)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the P4 program %s: %w", name, err)
	}
	return data, nil
}

// Parse reads a program. Its errors have the type *ReadError, which contains the error's place in
// the JSON.
func Parse(data []byte) (p *Program, err error) {
	root, err := parseDocument(data)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			re, ok := r.(*ReadError)
			if !ok {
				panic(r)
			}
			p, err = nil, re
		}
	}()
	if !root.isObject() {
		return nil, &ReadError{Msg: "expected an object, found " + root.kind()}
	}
	r := &reader{
		p: &Program{Aliases: map[string]FieldRef{}},
		index: index{
			tables: map[string]*Table{}, actionProfiles: map[string]*ActionProfile{},
			registers: map[string]*Register{}, counters: map[string]*Counter{},
			meters: map[string]*Meter{}, valueSets: map[string]*ValueSet{},
			headers: map[string]*Header{}, headerTypes: map[string]*HeaderType{},
			stacks: map[string]*HeaderStack{}, unions: map[string]*HeaderUnion{},
			unionStacks:  map[string]*HeaderUnionStack{},
			calculations: map[string]*Calculation{}, externs: map[string]*ExternInstance{},
			pipelines:  map[string]*Pipeline{},
			fieldLists: map[int]*FieldList{}, learnLists: map[int]*LearnList{},
			learnNames: map[string]*LearnList{}, actionIDs: map[int]*Action{},
		},
		headerIDs: map[int]*Header{}, unionIDs: map[int]*HeaderUnion{},
		unionTypes: map[string]*HeaderUnionType{}, unionStackOf: map[string]*HeaderUnionType{},
	}
	r.version(root)
	r.headerTypes(root)
	r.headers(root)
	r.stacks(root)
	r.unions(root)
	r.unionStacks(root)
	r.aliases(root)
	r.namesOnly(root)
	r.arrays(root)
	r.externArrays()
	r.calculations(root)
	r.lists(root)
	r.actions(root)
	r.parsers(root)
	r.deparsers(root)
	r.pipelines(root)
	r.directArrays(root)
	r.checksums(root)
	r.p.index = r.index
	return r.p, nil
}

// reader holds the parts of the program that have been read so far.
type reader struct {
	p *Program
	index
	headerIDs    map[int]*Header
	unionIDs     map[int]*HeaderUnion
	unionTypes   map[string]*HeaderUnionType
	unionStackOf map[string]*HeaderUnionType
	params       []Param // parameters of the action that is being read
	inParser     bool
}

// add stores an object under its name. It fails if the name is already in use.
func add[T any](m map[string]*T, kind string, at node, name string, v *T) {
	if _, dup := m[name]; dup {
		fail(at.path, "a second %s named %q", kind, name)
	}
	m[name] = v
}

func addID[T any](m map[int]*T, kind string, at node, id int, v *T) {
	if _, dup := m[id]; dup {
		fail(at.path, "a second %s with id %d", kind, id)
	}
	m[id] = v
}

// find looks up the object to which the JSON refers by name.
func find[T any](m map[string]*T, kind string, at node) *T {
	name := at.str()
	v, ok := m[name]
	if !ok {
		fail(at.path, "no %s is named %q", kind, name)
	}
	return v
}

func findID[T any](m map[int]*T, kind string, at node) *T {
	v, ok := m[at.int()]
	if !ok {
		fail(at.path, "no %s has id %d", kind, at.int())
	}
	return v
}

func (r *reader) version(root node) {
	if c := root.opt("program"); !c.isNull() {
		r.p.Name = c.str()
	}
	r.p.Major = supportedMajor
	meta := root.opt("__meta__")
	// Files older than the format's versions have no version. BMv2 accepts them, too.
	if meta.isNull() {
		return
	}
	if n := meta.opt("version"); !n.isNull() {
		v := n.tuple(2)
		r.p.Major, r.p.Minor = v[0].int(), v[1].int()
	}
	if r.p.Major != supportedMajor {
		fail("__meta__.version",
			"format %d.%d is not supported, only %d.x is: compile with a p4c that writes it",
			r.p.Major, r.p.Minor, supportedMajor)
	}
	if c := meta.opt("compiler"); !c.isNull() {
		r.p.Compiler = c.str()
	}
}

func (r *reader) headerTypes(root node) {
	for _, n := range root.get("header_types").list() {
		t := &HeaderType{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path, VL: -1}
		seen := map[string]bool{}
		for i, fn := range n.get("fields").list() {
			l := fn.list()
			if len(l) < 2 || len(l) > 4 {
				fail(fn.path, "expected [name, width, signed], found an array of %d", len(l))
			}
			f := &Field{Name: l[0].str(), Index: i, Offset: t.FixedBits}
			if seen[f.Name] {
				fail(fn.path, "a second field named %q", f.Name)
			}
			seen[f.Name] = true
			if len(l) > 2 {
				f.Signed = flag(l[2])
			}
			if len(l) > 3 && flag(l[3]) {
				fail(fn.path, "saturating fields are not supported")
			}
			if s, ok := l[1].v.(string); ok {
				if s != "*" {
					fail(l[1].path, "expected a width or \"*\", found %q", s)
				}
				if t.VL >= 0 {
					fail(fn.path, "a second field of variable length in one header type")
				}
				f.VL, t.VL = true, i
			} else {
				f.Width = l[1].nat(maxWidth)
				t.FixedBits += f.Width
				if f.Width == 0 {
					fail(l[1].path, "a field of no width")
				}
			}
			t.Fields = append(t.Fields, f)
		}
		if n.has("length_exp") && !n.opt("length_exp").isNull() {
			fail(n.path+".length_exp",
				"a header type's own length expression is not supported: p4c gives the length in extract_VL")
		}
		if t.VL >= 0 {
			t.MaxBytes = n.get("max_length").nat(maxWidth / 8)
			w := t.MaxBytes*8 - t.FixedBits
			if w < 0 {
				fail(n.path+".max_length", "%d bytes are fewer than the fixed fields have",
					t.MaxBytes)
			}
			t.Fields[t.VL].Width = w
		}
		add(r.index.headerTypes, "header type", n, t.Name, t)
		r.p.HeaderTypes = append(r.p.HeaderTypes, t)
	}
}

// flag reads a boolean. p4c writes the value of a field of type bool as 0 or 1.
func flag(n node) bool {
	if _, ok := n.v.(bool); ok {
		return n.boolean()
	}
	return n.nat(1) == 1
}

func (r *reader) headers(root node) {
	for i, n := range root.get("headers").list() {
		h := &Header{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path}
		if m := n.opt("metadata"); !m.isNull() {
			h.Metadata = m.boolean()
		}
		h.Type = find(r.index.headerTypes, "header type", n.get("header_type"))
		if o := n.opt("pi_omit"); !o.isNull() {
			h.Omit = o.boolean()
		}
		// Metadata that holds the program's local variables. p4c 1.2.4's PSA back end does not mark
		// it as metadata, and names the instance "<null>" if there are no variables.
		if h.Type.Name == "scalars_t" && (h.Name == "scalars" || h.Name == "<null>") {
			h.Metadata = true
		}
		if !h.Metadata && h.Type.FixedBits%8 != 0 {
			fail(n.path, "header %q has %d bits, which is no whole number of bytes", h.Name,
				h.Type.FixedBits)
		}
		add(r.index.headers, "header", n, h.Name, h)
		addID(r.headerIDs, "header", n, h.ID, h)
		r.p.Headers = append(r.p.Headers, h)
	}
}

func (r *reader) stacks(root node) {
	for i, n := range root.optList("header_stacks") {
		s := &HeaderStack{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path}
		s.Type = find(r.index.headerTypes, "header type", n.get("header_type"))
		for j, idn := range n.get("header_ids").list() {
			h := findID(r.headerIDs, "header", idn)
			if h.Type != s.Type {
				fail(idn.path, "header %q is of type %q, the stack of %q", h.Name, h.Type.Name,
					s.Type.Name)
			}
			if h.Stack != nil || h.Metadata {
				fail(idn.path, "header %q cannot be in this stack: it is metadata or in another",
					h.Name)
			}
			h.Stack, h.StackIndex = s, j
			s.Headers = append(s.Headers, h)
		}
		if len(s.Headers) == 0 {
			fail(n.path, "header stack %q has no elements", s.Name)
		}
		add(r.index.stacks, "header stack", n, s.Name, s)
		r.p.Stacks = append(r.p.Stacks, s)
	}
}

func (r *reader) unions(root node) {
	for _, n := range root.optList("header_union_types") {
		t := &HeaderUnionType{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		for _, m := range n.get("headers").list() {
			l := m.tuple(2)
			t.Members = append(t.Members, UnionMember{l[0].str(),
				find(r.index.headerTypes, "header type", l[1])})
		}
		add(r.unionTypes, "header union type", n, t.Name, t)
		r.p.UnionTypes = append(r.p.UnionTypes, t)
	}
	for i, n := range root.optList("header_unions") {
		u := &HeaderUnion{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path}
		u.Type = find(r.unionTypes, "header union type", n.get("union_type"))
		for j, idn := range n.get("header_ids").tuple(len(u.Type.Members)) {
			h := findID(r.headerIDs, "header", idn)
			if h.Type != u.Type.Members[j].Type {
				fail(idn.path, "header %q is of type %q, member %d of the union of %q", h.Name,
					h.Type.Name, j, u.Type.Members[j].Type.Name)
			}
			if h.Union != nil || h.Metadata {
				fail(idn.path, "header %q cannot be in this union: it is metadata or in another",
					h.Name)
			}
			h.Union, h.UnionIndex = u, j
			u.Headers = append(u.Headers, h)
		}
		add(r.index.unions, "header union", n, u.Name, u)
		addID(r.unionIDs, "header union", n, u.ID, u)
		r.p.Unions = append(r.p.Unions, u)
	}
}

func (r *reader) unionStacks(root node) {
	for i, n := range root.optList("header_union_stacks") {
		s := &HeaderUnionStack{Name: n.get("name").str(), ID: n.get("id").int(), Index: i,
			Path: n.path}
		s.Type = find(r.unionTypes, "header union type", n.get("union_type"))
		for j, idn := range n.get("header_union_ids").list() {
			u := findID(r.unionIDs, "header union", idn)
			if u.Type != s.Type {
				fail(idn.path, "header union %q is of type %q, the stack of %q", u.Name,
					u.Type.Name, s.Type.Name)
			}
			if u.Stack != nil {
				fail(idn.path, "header union %q is in another stack", u.Name)
			}
			u.Stack, u.StackIndex = s, j
			s.Unions = append(s.Unions, u)
		}
		if len(s.Unions) == 0 {
			fail(n.path, "header union stack %q has no elements", s.Name)
		}
		add(r.index.unionStacks, "header union stack", n, s.Name, s)
		r.p.UnionStacks = append(r.p.UnionStacks, s)
	}
}

func (r *reader) aliases(root node) {
	for _, n := range root.optList("field_aliases") {
		l := n.tuple(2)
		r.p.Aliases[l[0].str()] = r.fieldRef(l[1])
	}
}

// namesOnly reads objects of which engines only need the names: errors, enums, extern instances and
// value sets.
func (r *reader) namesOnly(root node) {
	for _, n := range root.optList("errors") {
		l := n.tuple(2)
		r.p.Errors = append(r.p.Errors, &Error{l[0].str(), l[1].int()})
	}
	for _, n := range root.optList("enums") {
		e := &Enum{Name: n.get("name").str(), Path: n.path}
		for _, en := range n.get("entries").list() {
			l := en.tuple(2)
			e.Entries = append(e.Entries, EnumEntry{l[0].str(), l[1].int()})
		}
		r.p.Enums = append(r.p.Enums, e)
	}
	for i, n := range root.optList("extern_instances") {
		e := &ExternInstance{Name: n.get("name").str(), ID: n.get("id").int(), Index: i,
			Path: n.path, Type: n.get("type").str(), Attributes: map[string]Attribute{}}
		for _, an := range n.optList("attribute_values") {
			e.Attributes[an.get("name").str()] = attribute(an)
		}
		add(r.index.externs, "extern instance", n, e.Name, e)
		r.p.Externs = append(r.p.Externs, e)
	}
	for i, n := range root.optList("parse_vsets") {
		s := &ValueSet{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path,
			Width: n.get("compressed_bitwidth").nat(maxWidth), MaxSize: defaultSetSize}
		if m := n.opt("max_size"); !m.isNull() {
			s.MaxSize = m.nat(maxArray)
		}
		s.Widths = []int{s.Width}
		add(r.index.valueSets, "value set", n, s.Name, s)
		r.p.ValueSets = append(r.p.ValueSets, s)
	}
}

// attribute reads a constructor argument of an extern object. p4c writes some numeric arguments as
// JSON numbers.
func attribute(n node) Attribute {
	v := n.get("value")
	a := Attribute{Path: v.path}
	switch t := n.get("type").str(); {
	case t == "string":
		a.Str = v.str()
	case t != "hexstr":
		fail(n.path+".type", "%q is not a type of attribute (hexstr, string)", t)
	case v.kind() == "a number":
		a.Number = big.NewInt(int64(v.int()))
	default:
		a.Number = v.hex()
	}
	return a
}

// number returns the named attribute, which must be a number from 0 to limit.
func (e *ExternInstance) number(name string, limit int) int {
	a, ok := e.Attributes[name]
	if !ok || a.Number == nil {
		fail(e.Path, "%s %q has no number %q", e.Type, e.Name, name)
	}
	if !a.Number.IsInt64() || a.Number.Int64() < 0 || a.Number.Int64() > int64(limit) {
		fail(a.Path, "%s is outside of 0 to %d", a.Number, limit)
	}
	return int(a.Number.Int64())
}

// externArrays finds the counter and meter arrays among the extern objects. p4c writes PSA's
// counters both as counter arrays and as extern objects.
func (r *reader) externArrays() {
	for _, e := range r.p.Externs {
		at := node{path: e.Path}
		switch e.Type {
		case "Counter":
			if c := r.index.counters[e.Name]; c != nil && !c.Direct {
				e.Counter = c
				continue
			}
			e.Counter = &Counter{Name: e.Name, ID: e.ID, Index: len(r.p.Counters), Path: e.Path,
				Size: e.number("n_counters", maxArray)}
			add(r.index.counters, "counter array", at, e.Name, e.Counter)
			r.p.Counters = append(r.p.Counters, e.Counter)
		case "Meter":
			if m := r.index.meters[e.Name]; m != nil && !m.Direct {
				e.Meter = m
				continue
			}
			e.Meter = &Meter{Name: e.Name, ID: e.ID, Index: len(r.p.Meters), Path: e.Path,
				Bytes: e.Attributes["type"].Str == "bytes", Rates: e.number("rate_count", 16),
				Size: e.number("n_meters", maxArray)}
			add(r.index.meters, "meter array", at, e.Name, e.Meter)
			r.p.Meters = append(r.p.Meters, e.Meter)
		}
	}
}

// arrays reads registers, counters and meters. Once the tables have been read, directArrays
// connects direct counters and meters with their tables.
func (r *reader) arrays(root node) {
	for i, n := range root.optList("register_arrays") {
		a := &Register{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path,
			Size: n.get("size").nat(maxArray), Width: n.get("bitwidth").nat(maxWidth)}
		if a.Width == 0 {
			fail(n.path+".bitwidth", "a register of no width")
		}
		if s := n.opt("signed"); !s.isNull() {
			a.Signed = s.boolean()
		}
		add(r.index.registers, "register array", n, a.Name, a)
		r.p.Registers = append(r.p.Registers, a)
	}
	for i, n := range root.optList("counter_arrays") {
		a := &Counter{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path}
		if d := n.opt("is_direct"); !d.isNull() {
			a.Direct = d.boolean()
		}
		if !a.Direct {
			a.Size = n.get("size").nat(maxArray)
		}
		add(r.index.counters, "counter array", n, a.Name, a)
		r.p.Counters = append(r.p.Counters, a)
	}
	for i, n := range root.optList("meter_arrays") {
		a := &Meter{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path,
			Rates: n.get("rate_count").nat(16)}
		switch t := n.get("type").str(); t {
		case "bytes":
			a.Bytes = true
		case "packets":
		default:
			fail(n.path+".type", "%q is not a kind of meter (bytes, packets)", t)
		}
		if d := n.opt("is_direct"); !d.isNull() {
			a.Direct = d.boolean()
		}
		if a.Direct {
			a.Result = r.fieldRef(n.get("result_target"))
		} else {
			a.Size = n.get("size").nat(maxArray)
		}
		add(r.index.meters, "meter array", n, a.Name, a)
		r.p.Meters = append(r.p.Meters, a)
	}
}

func (r *reader) directArrays(root node) {
	for i, n := range root.optList("counter_arrays") {
		if c := r.p.Counters[i]; c.Direct {
			t := find(r.index.tables, "table", n.get("binding"))
			if t.DirectCounter != nil {
				fail(n.path+".binding", "table %q already has direct counter %q", t.Name,
					t.DirectCounter.Name)
			}
			c.Table, t.DirectCounter, t.WithCounters = t, c, true
		}
	}
	for i, n := range root.optList("meter_arrays") {
		if m := r.p.Meters[i]; m.Direct {
			m.Table = find(r.index.tables, "table", n.get("binding"))
			if m.Table.DirectMeter != m {
				fail(n.path+".binding", "table %q does not name %q as its direct meter",
					m.Table.Name, m.Name)
			}
		}
	}
}

func (r *reader) calcInput(n node) CalcInput {
	switch t := n.get("type").str(); t {
	case "field":
		f := r.fieldRef(n.get("value"))
		return CalcInput{Field: f, Width: f.Width()}
	case "header":
		return CalcInput{Header: find(r.index.headers, "header", n.get("value"))}
	case "hexstr":
		w := n.get("bitwidth").nat(maxWidth)
		v := n.get("value")
		v.hexBytes(w)
		return CalcInput{Const: v.hex(), Width: w}
	case "payload":
		return CalcInput{Payload: true}
	default:
		fail(n.path+".type", "%q is not an input of a calculation (field, hexstr, header, payload)",
			t)
	}
	panic("unreachable")
}

func (r *reader) calculations(root node) {
	for i, n := range root.optList("calculations") {
		c := &Calculation{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path,
			Algo: n.get("algo").str()}
		for _, in := range n.get("input").list() {
			c.Input = append(c.Input, r.calcInput(in))
		}
		add(r.index.calculations, "calculation", n, c.Name, c)
		r.p.Calculations = append(r.p.Calculations, c)
	}
}

func (r *reader) lists(root node) {
	for _, n := range root.optList("field_lists") {
		l := &FieldList{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		for _, e := range n.get("elements").list() {
			x := r.expr(e)
			if x.Op != OpField {
				fail(e.path, "a field list keeps fields, not a %s", x.Op)
			}
			l.Fields = append(l.Fields, x.Field)
		}
		addID(r.index.fieldLists, "field list", n, l.ID, l)
		r.p.FieldLists = append(r.p.FieldLists, l)
	}
	for _, n := range root.optList("learn_lists") {
		l := &LearnList{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		for _, e := range n.get("elements").list() {
			x := r.expr(e)
			w := 0
			switch {
			case x.Op == OpField && !x.Field.IsValidity() && x.Field.Field.VL:
				fail(e.path, "a digest of a field of variable length is not supported")
			case x.Op == OpField, x.Op == OpStackField:
				w = x.Width
			case x.Op == OpConst && e.has("bitwidth"):
				w = e.opt("bitwidth").nat(maxWidth)
			case x.Op == OpConst:
				w = max(x.Const.BitLen(), 1)
			default:
				fail(e.path, "a digest sends fields and constants, not a %s", x.Op)
			}
			l.Elements = append(l.Elements, x)
			l.Widths = append(l.Widths, w)
		}
		addID(r.index.learnLists, "learn list", n, l.ID, l)
		r.index.learnNames[l.Name] = l
		r.p.LearnLists = append(r.p.LearnLists, l)
	}
}

func (r *reader) checksums(root node) {
	for _, n := range root.optList("checksums") {
		c := &Checksum{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path, Verify: true,
			Update: true}
		if t := n.get("type").str(); t != "generic" {
			fail(n.path+".type", "%q is not a supported kind of checksum (generic)", t)
		}
		c.Target = r.fieldRef(n.get("target"))
		c.Calc = find(r.index.calculations, "calculation", n.get("calculation"))
		if v := n.opt("verify"); !v.isNull() {
			c.Verify = v.boolean()
		}
		if v := n.opt("update"); !v.isNull() {
			c.Update = v.boolean()
		}
		if v := n.opt("if_cond"); !v.isNull() {
			c.Cond = r.typed(v, TypeBool)
		}
		r.p.Checksums = append(r.p.Checksums, c)
	}
}

func (r *reader) deparsers(root node) {
	for _, n := range root.get("deparsers").list() {
		d := &Deparser{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		for _, h := range n.get("order").list() {
			d.Order = append(d.Order, find(r.index.headers, "header", h))
		}
		for _, pn := range n.optList("primitives") {
			d.Primitives = append(d.Primitives, r.primitive(pn))
		}
		r.p.Deparsers = append(r.p.Deparsers, d)
	}
}
