package progfuzz

import (
	"fmt"
	"slices"
	"strings"
)

// array is a register, counter or meter of a control.
type array struct {
	name string
	t    typ // type of the register's cells
	size int
}

// body is a control block while it is being generated.
type body struct {
	*gen
	name      string
	registers []array
	counters  []array
	meters    []array
	actions   []action
	calls     []string // statements that call actions with arguments
	decls     []*node
	tables    []*node // statements that apply tables; each may be used only once
	left      int     // number of statements that may still be added
}

type action struct {
	name   string
	params []field
}

// control generates a control block with the given name, for ingress or egress, or as a subcontrol.
func (g *gen) control(name string, egress, sub bool) *node {
	b := &body{gen: g, name: name, left: 8 + g.r.IntN(16)}
	if g.f.Large {
		b.left *= 3
	}
	s := &scope{egress: egress, sub: sub, headers: g.all(), valid: []string{g.eth.expr}}
	var locals []*node
	for range 1 + g.r.IntN(3) {
		v := value{g.name("v"), g.typ(), ""}
		s.locals = append(s.locals, v)
		locals = append(locals, line(fmt.Sprintf("%s %s = %s;", v.t, v.expr, g.literal(v.t))))
	}
	b.arrays(s)
	for range 1 + g.r.IntN(3) {
		b.action(s)
	}
	if g.f.Table {
		for range 1 + g.r.IntN(3) {
			b.table(s)
		}
	}
	for i, c := range g.subs {
		if g.oneIn(2) {
			b.decls = append(b.decls, line(fmt.Sprintf("%s() sub%d;", c, i)))
			b.tables = append(b.tables, line(fmt.Sprintf("sub%d.apply(h, m, sm);", i)))
		}
	}
	var apply []*node
	if !egress && !sub {
		if !g.f.Loose {
			apply = append(apply,
				keep("if (!h.eth.isValid()) {\n    mark_to_drop(sm);\n    return;\n}"))
		}
		apply = append(apply, keep("sm.egress_spec = 9w1 + (bit<9>)h.eth.way[1:0];"))
		if g.f.CPU {
			apply = append(apply,
				line(fmt.Sprintf("if (h.eth.way[4:2] == 5) { sm.egress_spec = %d; }", CPUPort)),
				line(
					"if (h.packet_out.isValid()) {\n    sm.egress_spec = h.packet_out.port;\n    h.packet_out.setInvalid();\n}"))
		}
	}
	apply = append(apply, b.statements(s, 3+g.r.IntN(8), 3)...)
	for _, t := range b.tables { // apply the tables that no statement applies yet
		apply = slices.Insert(apply, g.r.IntN(len(apply)+1), t)
	}
	if !sub {
		apply = append(apply, b.requests(s)...)
	}
	if egress {
		apply = append(apply, g.leaving()...)
	}
	decls := append(locals, b.decls...)
	return fixedBlock(fmt.Sprintf(
		"control %s(inout headers_t h, inout metadata_t m, inout standard_metadata_t sm) {", name),
		append(decls, fixedBlock("apply {", apply, "}")), "}\n")
}

// leaving generates the statements that write the program's state into a header of the frames that
// leave.
func (g *gen) leaving() []*node {
	set := []string{"h.seen.setValid();"}
	width := 0
	for _, f := range standard {
		set = append(set, fmt.Sprintf("h.seen.%s = sm.%s;", f.name, f.name))
		width += f.t.w
	}
	for _, f := range g.meta {
		set = append(set, fmt.Sprintf("h.seen.%s = m.%s;", f.name, f.name))
		width += f.t.w
	}
	if width%8 != 0 {
		set = append(set, "h.seen.pad = 0;")
	}
	out := []*node{line(strings.Join(set, "\n"))}
	if g.f.CPU {
		out = append(out,
			line(fmt.Sprintf(
				"if (sm.egress_port == %d) {\n    h.packet_in.setValid();\n    h.packet_in.port = sm.ingress_port;\n    h.packet_in.pad = 0;\n}", CPUPort)))
	}
	return out
}

func (b *body) arrays(s *scope) {
	// No target defines the order of copies in egress, or the order of the packets that come back
	// to ingress.
	ordered := (!s.egress || !b.f.copies() && !b.f.back()) && !(b.f.copies() && b.f.back())
	if b.f.Register && (ordered && !s.sub || b.f.Loose) {
		for range 1 + b.r.IntN(3) {
			a := array{b.gen.name("r"), b.typ(), pick(b.gen, []int{1, 2, 4, 16, 64})}
			b.registers = append(b.registers, a)
			b.decls = append(b.decls, line(fmt.Sprintf("register<%s>(%d) %s;", a.t, a.size,
				a.name)))
		}
	}
	if b.f.Counter {
		a := array{b.gen.name("c"), typ{}, pick(b.gen, []int{1, 8, 32})}
		b.counters = append(b.counters, a)
		b.decls = append(b.decls, line(fmt.Sprintf("counter(%d, CounterType.packets_and_bytes) %s;",
			a.size, a.name)))
	}
	if b.f.Meter {
		a := array{b.gen.name("x"), typ{}, pick(b.gen, []int{1, 8, 32})}
		b.meters = append(b.meters, a)
		b.decls = append(b.decls, line(fmt.Sprintf("meter(%d, MeterType.%s) %s;", a.size,
			pick(b.gen, []string{"packets", "bytes"}), a.name)))
	}
}

// index generates an expression for an index into an array.
func (b *body) index(s *scope, size int) string {
	if b.f.Loose && b.oneIn(3) {
		return "(bit<32>)" + b.expr(s, bits(1+b.r.IntN(8)), 1)
	}
	w := 0
	for 1<<(w+1) <= size {
		w++
	}
	if w == 0 || b.oneIn(3) {
		return fmt.Sprint(b.r.IntN(size))
	}
	return "(bit<32>)(" + b.expr(s, bits(w), 1) + ")"
}

// statements generates up to n statements.
func (b *body) statements(s *scope, n, depth int) (list []*node) {
	c := *s
	s = &c
	for range n {
		if b.left--; b.left < 0 {
			break
		}
		if x := b.statement(s, depth); x != nil {
			list = append(list, x)
		}
	}
	return list
}

func (b *body) assign(s *scope, depth int) *node {
	p := pick(b.gen, b.places(s))
	if b.f.Concat && !p.t.signed && p.t.w > 2 && b.oneIn(5) {
		hi := b.r.IntN(p.t.w)
		lo := b.r.IntN(hi + 1)
		return line(fmt.Sprintf("%s[%d:%d] = %s;", p.expr, hi, lo, b.expr(s, bits(hi-lo+1), depth)))
	}
	return line(fmt.Sprintf("%s = %s;", p.expr, b.expr(s, p.t, depth)))
}

// makeValid generates statements that make a header valid and set all of its fields.
func (b *body) makeValid(s *scope, h *header) *node {
	text := []string{h.expr + ".setValid();"}
	without := *s // a scope without this header; nothing in it reads the header's old fields
	without.headers = slices.DeleteFunc(slices.Clone(s.headers),
		func(o *header) bool { return o == h })
	for _, f := range h.t.fields {
		text = append(text, fmt.Sprintf("%s.%s = %s;", h.expr, f.name, b.expr(&without, f.t, 1)))
	}
	if b.f.Loose && b.oneIn(2) {
		text = text[:1]
	}
	return line(strings.Join(text, "\n"))
}

func (b *body) statement(s *scope, depth int) *node {
	type form func() *node
	forms := []form{}
	add := func(n int, f form) {
		for range n {
			forms = append(forms, f)
		}
	}
	add(6, func() *node { return b.assign(s, 3) })
	if s.action { // In actions, p4c accepts conditions only for assignments.
		add(1, func() *node {
			return block("if ("+b.cond(s, 2)+") {", []*node{b.assign(s, 2)},
				"}")
		})
	} else if depth > 0 {
		add(3, func() *node {
			n := block("if ("+b.cond(s, 3)+") {", b.statements(s, 1+b.r.IntN(3), depth-1), "}")
			if b.oneIn(2) {
				n.mid, n.more = "} else {", b.statements(s, 1+b.r.IntN(3), depth-1)
			}
			return n
		})
		add(2, func() *node {
			h := pick(b.gen, s.headers)
			return block("if ("+h.expr+".isValid()) {",
				b.statements(s.with(h.expr), 1+b.r.IntN(4), depth-1), "}")
		})
		add(1, func() *node {
			w := 1 + b.r.IntN(6)
			var cases []*node
			seen := map[int]bool{}
			for range 1 + b.r.IntN(3) {
				n := b.r.IntN(1 << min(w, 3))
				if !seen[n] {
					cases = append(cases, block(fmt.Sprintf("%d: {", n),
						b.statements(s, 1+b.r.IntN(2), depth-1), "}"))
				}
				seen[n] = true
			}
			if b.oneIn(2) {
				cases = append(cases, block("default: {", b.statements(s, 1+b.r.IntN(2), depth-1),
					"}"))
			}
			return block(fmt.Sprintf("switch (%s) {", b.expr(s, bits(w), 2)), cases, "}")
		})
	}
	add(2, func() *node {
		h := pick(b.gen, s.headers)
		if h == b.eth || h.t.varbit > 0 {
			return nil
		}
		switch b.r.IntN(4) {
		case 0:
			return line(h.expr + ".setInvalid();")
		case 1:
			var others []*header
			for _, o := range s.headers {
				if o.t == h.t && o != h {
					others = append(others, o)
				}
			}
			if len(others) > 0 {
				return line(fmt.Sprintf("%s = %s;", h.expr, pick(b.gen, others).expr))
			}
		}
		n := b.makeValid(s, h)
		if !b.f.Loose {
			s.valid = append(slices.Clone(s.valid), h.expr)
		}
		return n
	})
	if len(b.stacks) > 0 {
		add(1, func() *node {
			st := pick(b.gen, b.stacks)
			switch b.r.IntN(4) {
			case 0:
				for _, o := range b.stacks {
					if o != st && o.t == st.t && o.size == st.size {
						return line(fmt.Sprintf("h.%s = h.%s;", st.name, o.name))
					}
				}
			case 1:
				// This statement accesses the stack at an index that is known only at run time.
				if st.size&(st.size-1) == 0 && st.size > 1 || b.f.Loose {
					w := 2
					if !b.f.Loose {
						w = map[int]int{2: 1, 4: 2}[st.size]
					}
					f := pick(b.gen, st.t.fields)
					i := b.gen.name("i")
					if b.oneIn(2) || b.f.Loose {
						return line(fmt.Sprintf("{\n    bit<%d> %s = %s;\n    h.%s[%s].%s = %s;\n}",
							w, i, b.expr(s, bits(w), 1), st.name, i, f.name, b.expr(s, f.t, 2)))
					}
					p := pick(b.gen, b.places(s))
					return line(fmt.Sprintf(
						"{\n    bit<%d> %s = %s;\n    if (h.%s[%s].isValid()) { %s = %s; }\n}", w,
						i, b.expr(s, bits(w), 1), st.name, i, p.expr,
						cast(fmt.Sprintf("h.%s[%s].%s", st.name, i, f.name), f.t, p.t)))
				}
			case 2:
				return line(fmt.Sprintf("h.%s.push_front(%d);", st.name, 1+b.r.IntN(st.size)))
			}
			return line(fmt.Sprintf("h.%s.pop_front(%d);", st.name, 1+b.r.IntN(st.size)))
		})
	}
	if len(b.registers) > 0 {
		add(3, func() *node {
			a := pick(b.gen, b.registers)
			switch b.r.IntN(3) {
			case 0:
				v := b.gen.name("v")
				i := b.index(s, a.size)
				with := *s
				with.locals = append(slices.Clone(s.locals), value{v, a.t, ""})
				return line(fmt.Sprintf(
					"{\n    %s %s;\n    %s.read(%s, %s);\n    %s = %s;\n    %s.write(%s, %s);\n}",
					a.t, v, a.name, v, i, v, b.expr(&with, a.t, 2), a.name, i, v))
			case 1:
				for range 5 {
					if p := pick(b.gen, b.places(s)); p.t == a.t {
						return line(fmt.Sprintf("%s.read(%s, %s);", a.name, p.expr,
							b.index(s, a.size)))
					}
				}
			}
			return line(fmt.Sprintf("%s.write(%s, %s);", a.name, b.index(s, a.size),
				b.expr(s, a.t, 2)))
		})
	}
	if len(b.counters) > 0 {
		add(1, func() *node {
			a := pick(b.gen, b.counters)
			return line(fmt.Sprintf("%s.count(%s);", a.name, b.index(s, a.size)))
		})
	}
	if len(b.meters) > 0 {
		add(1, func() *node {
			a, v, p := pick(b.gen, b.meters), b.gen.name("v"), pick(b.gen, b.places(s))
			return line(fmt.Sprintf(
				"{\n    bit<2> %s;\n    %s.execute_meter<bit<2>>(%s, %s);\n    %s = %s;\n}", v,
				a.name, b.index(s, a.size), v, p.expr, cast(v, bits(2), p.t)))
		})
	}
	if b.f.Hash {
		add(2, func() *node { return b.hash(s) })
	}
	if b.f.Random && !s.action {
		add(1, func() *node {
			w := pick(b.gen, []int{3, 8, 9, 16, 32, 48})
			v, lo := b.gen.name("v"), uint64(b.r.IntN(4))
			hi := lo + b.r.Uint64N(1<<min(w-1, 40)-1)
			if b.oneIn(3) {
				hi = lo
			}
			p := pick(b.gen, b.places(s))
			return line(fmt.Sprintf(
				"{\n    bit<%d> %s;\n    random(%s, %dw%d, %dw%d);\n    if (%s < %d || %s > %d) { %s = %s; }\n}", w, v, v, w, lo, w, hi, v, lo, v, hi, p.expr, b.literal(p.t)))
		})
	}
	if len(b.calls) > 0 {
		add(1, func() *node { return line(pick(b.gen, b.calls)) })
	}
	if !s.action && len(b.tables) > 0 && depth > 1 {
		add(3, func() *node {
			t := b.tables[0]
			b.tables = b.tables[1:]
			return t
		})
	}
	if !s.egress && !s.sub {
		add(1, func() *node {
			switch b.r.IntN(5) {
			case 0:
				return line("mark_to_drop(sm);")
			case 1:
				if b.f.Multicast {
					return line(fmt.Sprintf("sm.mcast_grp = %s;",
						b.expr(s, bits(16),
							1)+"[1:0] == 3 ? 16w0 : 16w1 + (bit<16>)h.eth.way[3:2]"))
				}
			case 2:
				return line("sm.egress_spec = 9w1 + (bit<9>)" + b.expr(s, bits(2), 1) + ";")
			}
			return nil
		})
	}
	if b.f.Digest && !s.egress && !s.sub {
		add(1, func() *node {
			return line(fmt.Sprintf("digest<digest_t>(1, { %s, sm.ingress_port });",
				b.expr(s, bits(b.meta[0].t.w), 1)))
		})
	}
	if b.f.Truncate && !s.sub {
		add(1, func() *node {
			return line(fmt.Sprintf("truncate(32w150 + (bit<32>)(%s));", b.expr(s, bits(6), 1)))
		})
	}
	if b.f.Exit && depth < 3 {
		add(1, func() *node {
			if s.action {
				return line("exit;")
			}
			if b.oneIn(2) {
				return line("if (" + b.cond(s, 2) + ") { exit; }")
			}
			return line("if (" + b.cond(s, 2) + ") { return; }")
		})
	}
	return pick(b.gen, forms)()
}

func (b *body) hash(s *scope) *node {
	p := pick(b.gen, b.places(s))
	if p.t.signed || p.t.w > 64 || p.t.w < 2 {
		p = value{"m.hashed", bits(32), ""}
		return nil
	}
	algo := pick(b.gen, []string{"crc16", "crc32", "identity", "csum16", "xor16", "crc16", "crc32"})
	odd := b.f.OddHash || algo == "crc16" || algo == "crc32" || algo == "identity"
	var in []string
	total := 0
	candidates := b.plain(s)
	for range 1 + b.r.IntN(5) {
		if b.oneIn(5) {
			w := 16
			if odd {
				w = pick(b.gen, narrow)
			}
			in, total = append(in, b.literal(bits(w))), total+w
			continue
		}
		v := pick(b.gen, candidates)
		in, total = append(in, v.expr), total+v.t.w
	}
	if rest := total % 16; rest != 0 && !odd {
		in = append(in, b.literal(bits(16-rest)))
	}
	limit := 1 + b.r.Uint64N(1<<min(p.t.w-1, 40))
	return line(fmt.Sprintf("hash(%s, HashAlgorithm.%s, %dw%d, { %s }, %dw%d);", p.expr, algo,
		p.t.w, b.r.IntN(2), strings.Join(in, ", "), p.t.w, limit))
}

// action generates an action. Either tables use it, or statements call it with arguments.
func (b *body) action(s *scope) {
	c := *s
	c.action = true
	name := b.gen.name("a")
	var params []string
	a := action{name: name}
	if b.f.Call && b.oneIn(3) {
		in, inout := b.typ(), pick(b.gen, b.places(s))
		c.params = []value{{"in0", in, ""}}
		c.locals = append(slices.Clone(s.locals), value{"io0", inout.t, ""})
		b.decls = append(b.decls, block(fmt.Sprintf("action %s(in %s in0, inout %s io0) {", name,
			in, inout.t), b.statements(&c, 1+b.r.IntN(3), 1), "}"))
		b.calls = append(b.calls, fmt.Sprintf("%s(%s, %s);", name, b.expr(s, in, 2), inout.expr))
		return
	}
	for i := range b.r.IntN(4) {
		f := field{fmt.Sprintf("p%d", i), b.typ()}
		a.params = append(a.params, f)
		c.params = append(c.params, value{f.name, f.t, ""})
		params = append(params, fmt.Sprintf("%s %s", f.t, f.name))
	}
	b.decls = append(b.decls, block(fmt.Sprintf("action %s(%s) {", name,
		strings.Join(params, ", ")), b.statements(&c, 1+b.r.IntN(4), 1), "}"))
	b.actions = append(b.actions, a)
}

// call generates a call of an action with constant arguments.
func (b *body) call(a action) string {
	var args []string
	for _, p := range a.params {
		if p.t.signed { // p4c writes no negative arguments
			args = append(args, fmt.Sprintf("%ds0", p.t.w))
			continue
		}
		args = append(args, b.literal(p.t))
	}
	return fmt.Sprintf("%s(%s)", a.name, strings.Join(args, ", "))
}

// table generates a table, and the statement that applies it.
func (b *body) table(s *scope) {
	name := b.gen.name("t")
	kinds := []string{"exact", "exact", "lpm", "ternary", "range", "optional"}
	general := pick(b.gen, []string{"exact", "lpm", "ternary"})
	type key struct {
		kind string
		w    int
	}
	var keys []*node
	var shape []key
	lpm := false
	candidates := b.plain(s)
	for i := range 1 + b.r.IntN(3) {
		v := pick(b.gen, candidates)
		kind := pick(b.gen, kinds)
		if kind == "lpm" && v.t.w%8 != 0 {
			// BMv2's P4Runtime server accepts no other prefix lengths
			kind = "ternary"
		}
		if kind != "exact" && (general == "exact" || general == "lpm" && kind != "lpm") ||
			kind == "lpm" && lpm || kind == "range" && v.t.w > 32 {
			kind = "exact"
		}
		expr := v.expr
		if kind != "lpm" && i == 0 && b.oneIn(2) {
			lo := b.r.IntN(6)
			expr, v.t = fmt.Sprintf("h.eth.%s[%d:%d]", pick(b.gen, []string{"sel", "way"}), lo+2,
				lo), bits(3)
		} else if b.oneIn(6) {
			expr = b.expr(s, v.t, 2)
		}
		if v.t.signed {
			expr, v.t.signed = fmt.Sprintf("(%s)%s", bits(v.t.w), expr), false
		}
		lpm = lpm || kind == "lpm"
		keys = append(keys, keep(fmt.Sprintf("%s : %s @name(\"k%d\");", expr, kind, i)))
		shape = append(shape, key{kind, v.t.w})
	}
	if b.oneIn(5) {
		h := pick(b.gen, s.headers)
		keys = append(keys, line(h.expr+".isValid() : exact @name(\"valid\");"))
		shape = append(shape, key{"exact", 0})
	}
	var names []*node
	actions := b.actions
	with := []action{}
	for _, a := range actions {
		if b.oneIn(4) && len(actions) > 1 {
			continue
		}
		with = append(with, a)
		names = append(names, line(a.name+";"))
	}
	names = append(names, keep("NoAction;"))
	properties := []*node{fixedBlock("key = {", keys, "}"), fixedBlock("actions = {", names, "}")}
	none := action{name: "NoAction"}
	choose := func() action { return pick(b.gen, append([]action{none}, with...)) }
	switch b.r.IntN(3) {
	case 0:
		properties = append(properties, line("default_action = "+b.call(choose())+";"))
	case 1:
		properties = append(properties, line("const default_action = "+b.call(choose())+";"))
	}
	if b.oneIn(3) {
		var entries []*node
		// The first field of the key distinguishes the entries.
		for i := range min(1+b.r.IntN(4), 1<<min(shape[0].w, 3)) {
			var parts []string
			for j, k := range shape {
				n := b.r.Uint64N(1 << min(k.w, 3))
				if j == 0 {
					n = uint64(i)
				}
				top := uint64(1)<<min(k.w, 60) - 1
				text := fmt.Sprint(n)
				switch {
				case k.w == 0:
					text = pick(b.gen, []string{"true", "false"})
				case k.kind == "range":
					text = fmt.Sprintf("%d .. %d", n, min(n+b.r.Uint64N(4), top))
				case k.kind == "ternary" && j > 0 && b.oneIn(2):
					m := b.r.Uint64N(1 << min(k.w, 3))
					text = fmt.Sprintf("%d &&& %d", n&m, m)
				case k.kind == "lpm" && j > 0 && k.w <= 60:
					drop := b.r.IntN(k.w + 1)
					m := top >> drop << drop
					text = fmt.Sprintf("%d &&& %d", n&m, m)
				case k.kind == "optional" && j > 0 && b.oneIn(2):
					text = "_"
				}
				parts = append(parts, text)
			}
			entries = append(entries, line(fmt.Sprintf("(%s) : %s;", strings.Join(parts, ", "),
				b.call(choose()))))
		}
		properties = append(properties, block("const entries = {", entries, "}"))
	} else {
		properties = append(properties, line(fmt.Sprintf("size = %d;", 32<<b.r.IntN(3))))
	}
	if b.f.Counter && b.oneIn(3) {
		c := b.gen.name("dc")
		b.decls = append(b.decls,
			line(fmt.Sprintf("direct_counter(CounterType.packets_and_bytes) %s;", c)))
		properties = append(properties, line(fmt.Sprintf("counters = %s;", c)))
	}
	b.decls = append(b.decls, fixedBlock("table "+name+" {", properties, "}"))
	b.decls[len(b.decls)-1].fixed = false
	var apply *node
	switch b.r.IntN(3) {
	case 0:
		apply = line(name + ".apply();")
	case 1:
		apply = block("if ("+name+".apply()."+pick(b.gen, []string{"hit", "miss"})+") {",
			b.statements(s, 1+b.r.IntN(2), 1), "}")
		if b.oneIn(2) {
			apply.mid, apply.more = "} else {", b.statements(s, 1+b.r.IntN(2), 1)
		}
	default:
		var cases []*node
		for _, a := range with {
			if b.oneIn(2) {
				cases = append(cases, block(a.name+": {", b.statements(s, 1+b.r.IntN(2), 1), "}"))
			}
		}
		if len(cases) == 0 || b.oneIn(2) {
			cases = append(cases, block("default: {", b.statements(s, 1+b.r.IntN(2), 1), "}"))
		}
		apply = block("switch ("+name+".apply().action_run) {", cases, "}")
	}
	b.tables = append(b.tables, apply)
}

// requests generates statements that request copies of a packet, or that a packet comes back to
// ingress. The number of such rounds is limited for a packet and all its copies.
func (b *body) requests(s *scope) (out []*node) {
	add := func(what string) {
		round := fmt.Sprintf(
			"if (m.rounds < %d && h.eth.way[%d:%d] %s %d) {\n    m.rounds = m.rounds + 1;\n    %s\n}", 1+b.r.IntN(maxRounds), 5, 4, pick(b.gen, []string{"==", "!="}), b.r.IntN(4), what)
		out = append(out, line(round))
	}
	list := func() int { return 1 + b.r.IntN(b.lists) }
	session := func() string {
		if b.oneIn(2) {
			return fmt.Sprint(1 + b.r.IntN(Sessions+1)) // some of these sessions do not exist
		}
		return "(bit<32>)h.eth.way[7:6]"
	}
	clone := func(kind string) {
		if b.oneIn(3) { // this copy preserves no metadata, not even the number of rounds
			out = append(out,
				line(fmt.Sprintf(
					"if (m.rounds == 0 && sm.instance_type == 0 && h.eth.way[5:4] == %d) {\n    m.rounds = 1;\n    clone(CloneType.%s, %s);\n}", b.r.IntN(4), kind, session())))
			return
		}
		add(fmt.Sprintf("clone_preserving_field_list(CloneType.%s, %s, %d);", kind, session(),
			list()))
	}
	if !s.egress {
		if b.f.CloneI2E {
			clone("I2E")
		}
		if b.f.Resubmit {
			add(fmt.Sprintf("resubmit_preserving_field_list(%d);", list()))
		}
	} else {
		if b.f.CloneE2E {
			clone("E2E")
		}
		if b.f.Recirc {
			add(fmt.Sprintf("recirculate_preserving_field_list(%d);", list()))
		}
	}
	b.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	if b.oneIn(3) && len(out) > 0 && s.egress {
		out = append(out, line(fmt.Sprintf("if (h.eth.way[3:2] == %d) { mark_to_drop(sm); }",
			b.r.IntN(4))))
	}
	return out
}
