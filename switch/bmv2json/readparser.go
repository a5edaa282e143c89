package bmv2json

func (r *reader) parsers(root node) {
	r.inParser = true
	defer func() { r.inParser = false }()
	for _, n := range root.get("parsers").list() {
		p := &Parser{Name: n.get("name").str(), ID: n.get("id").int(), Path: n.path}
		states := map[string]*ParseState{}
		nodes := n.get("parse_states").list()
		for i, sn := range nodes {
			s := &ParseState{Name: sn.get("name").str(), ID: sn.get("id").int(), Index: i,
				Path: sn.path}
			add(states, "parse state", sn, s.Name, s)
			p.States = append(p.States, s)
		}
		for i, sn := range nodes {
			r.parseState(p.States[i], sn, states)
		}
		if in := n.opt("init_state"); !in.isNull() {
			p.Init = find(states, "parse state", in)
		}
		r.p.Parsers = append(r.p.Parsers, p)
	}
}

func (r *reader) parseState(s *ParseState, n node, states map[string]*ParseState) {
	for _, on := range n.get("parser_ops").list() {
		s.Ops = append(s.Ops, r.parserOp(on))
	}
	keyBytes := 0
	for _, kn := range n.get("transition_key").list() {
		k := r.expr(kn)
		switch k.Op {
		case OpField, OpStackField, OpUnionStackField, OpLookahead:
		default:
			fail(kn.path, "a select is on fields and lookaheads, not on a %s", k.Op)
		}
		s.Key = append(s.Key, k)
		s.KeyWidths = append(s.KeyWidths, k.Width)
		keyBytes += (k.Width + 7) / 8
	}
	for _, tn := range n.get("transitions").list() {
		t := &Transition{Path: tn.path}
		kind := "hexstr"
		if k := tn.opt("type"); !k.isNull() {
			kind = k.str()
		}
		v := tn.opt("value")
		// Older versions of p4c write "default" in this form.
		if s, ok := v.v.(string); ok && s == "default" && kind == "hexstr" {
			kind = "default"
		}
		switch kind {
		case "default":
			t.Kind = TransDefault
		case "hexstr":
			t.Kind, t.Value = TransValue, v.rawBytes(keyBytes)
			if m := tn.opt("mask"); !m.isNull() {
				t.Mask = m.rawBytes(keyBytes)
			}
		case "parse_vset":
			t.Kind, t.Set = TransValueSet, find(r.index.valueSets, "value set", v)
			if m := tn.opt("mask"); !m.isNull() {
				t.Mask = m.rawBytes(keyBytes)
			}
			sum := 0
			for _, w := range s.KeyWidths {
				sum += w
			}
			if sum != t.Set.Width {
				fail(tn.path, "value set %q has members of %d bits, the select is on %d",
					t.Set.Name, t.Set.Width, sum)
			}
			t.Set.Widths = s.KeyWidths
		default:
			fail(tn.path+".type", "%q is not a kind of transition (default, hexstr, parse_vset)",
				kind)
		}
		if next := tn.opt("next_state"); !next.isNull() {
			t.Next = find(states, "parse state", next)
		}
		s.Transitions = append(s.Transitions, t)
	}
}

func (r *reader) parserOp(n node) *ParserOp {
	o := &ParserOp{Path: n.path}
	params := n.get("parameters")
	switch name := n.get("op").str(); name {
	case "extract", "extract_VL":
		count := 1
		if name == "extract_VL" {
			count, o.Kind = 2, ParserExtractVL
		}
		l := params.tuple(count)
		var t *HeaderType
		v := l[0].get("value")
		switch what := l[0].get("type").str(); what {
		case "regular":
			o.Header = find(r.index.headers, "header", v)
			t = o.Header.Type
		case "stack":
			o.Stack = find(r.index.stacks, "header stack", v)
			t = o.Stack.Type
		case "union_stack":
			pair := v.tuple(2)
			o.UnionStack = find(r.index.unionStacks, "header union stack", pair[0])
			o.UnionMember = unionMember(o.UnionStack.Type, pair[1])
			t = o.UnionStack.Type.Members[o.UnionMember].Type
		default:
			fail(l[0].path, "cannot extract a %q (regular, stack, union_stack)", what)
		}
		switch {
		case count == 2 && t.VL < 0:
			fail(n.path, "extract_VL of header type %q, which has no field of variable length",
				t.Name)
		case count == 2:
			o.Length = r.typed(l[1], TypeData)
		case t.VL >= 0:
			fail(n.path,
				"extract of header type %q needs the length of its varbit field: extract_VL",
				t.Name)
		}
		if o.Header != nil && o.Header.Metadata {
			fail(n.path, "extract into metadata %q", o.Header.Name)
		}
	case "set":
		l := params.tuple(2)
		d := r.expr(l[0])
		if d.Op != OpField {
			fail(l[0].path, "cannot set a %s", d.Op)
		}
		if d.Field.IsValidity() {
			o.Kind, o.Primitive = ParserPrimitive, r.setValidity(d, l[1])
			break
		}
		o.Kind, o.Dest, o.Value = ParserSet, d.Field, r.typed(l[1], TypeData)
	case "verify":
		l := params.tuple(2)
		o.Kind, o.Cond, o.Value = ParserVerify, r.typed(l[0], TypeBool), r.typed(l[1], TypeData)
	case "advance":
		o.Kind, o.Value = ParserAdvance, r.typed(params.tuple(1)[0], TypeData)
	case "primitive":
		o.Kind, o.Primitive = ParserPrimitive, r.primitive(params.tuple(1)[0])
	default:
		fail(n.path+".op", "%q is not a known parser operation", name)
	}
	return o
}

// setValidity returns the primitive that replaces an assignment to a header's $valid$ field. Older
// versions of p4c wrote setValid and setInvalid in a parser as such assignments.
func (r *reader) setValidity(d *Expr, to node) *Primitive {
	h := d.Field.Header
	if h.Metadata {
		fail(d.Path, "cannot set the validity of metadata %q", h.Name)
	}
	v := r.typed(to, TypeData)
	if v.Op != OpConst {
		fail(to.path, "the validity of header %q is set to a %s, and not to a constant", h.Name,
			v.Op)
	}
	p := &Primitive{Op: "remove_header", Path: d.Path,
		Args: []*Expr{{Op: OpHeader, Type: TypeHeader, Header: h, Path: d.Path}}}
	if v.Const.Sign() != 0 {
		p.Op = "add_header"
	}
	return p
}
