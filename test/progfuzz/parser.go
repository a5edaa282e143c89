package progfuzz

import (
	"fmt"
	"strings"
)

// parser generates a parser. It is a sequence of states with random transitions to later states.
// Each state extracts a header or does something else.
func (g *gen) parser() *node {
	type plan struct {
		name string
		body []*node
		s    *scope // the scope at the end of the state's body
		// the stack whose last element decides whether the state is repeated; "" if the state is
		// not a loop
		loop string
	}
	base := &scope{parser: true, headers: g.all(), valid: []string{g.eth.expr}}
	eth := &plan{name: "eth", s: base, body: []*node{keep("pkt.extract(h.eth);")}}
	states := []*plan{eth}
	add := func(name string, s *scope, body ...*node) *plan {
		p := &plan{name: name, s: s, body: body}
		states = append(states, p)
		return p
	}
	for _, h := range g.headers[1:] {
		take := fmt.Sprintf("pkt.extract(%s);", h.expr)
		if h.t.varbit > 0 {
			length := fmt.Sprintf("((bit<32>)h.eth.way[%d:0]) << 3", 2+g.r.IntN(2))
			if g.f.Loose && g.oneIn(2) {
				// this length may be too long, or not a whole number of bytes
				length = "(bit<32>)h.eth.way"
			}
			take = fmt.Sprintf("pkt.extract(%s, %s);", h.expr, length)
		}
		add("take_"+h.expr[2:], base.with(h.expr), line(take))
	}
	for i, s := range g.stacks {
		take := line(fmt.Sprintf("pkt.extract(h.%s.next);", s.name))
		p := add("take_"+s.name, base, take)
		if i == 0 && g.f.Loop {
			// without this extraction, the parser would loop forever
			p.loop, take.fixed = s.name, true
		} else if s.size > 1 && g.oneIn(2) {
			p.body = append(p.body, line(fmt.Sprintf("pkt.extract(h.%s.next);", s.name)))
		}
	}
	for _, u := range g.unions {
		for i, m := range u.members {
			add(fmt.Sprintf("take_u%d", i), base.with(m.expr),
				line(fmt.Sprintf("pkt.extract(%s);", m.expr)))
		}
	}
	g.r.Shuffle(len(states)-1, func(i, j int) {
		states[i+1], states[j+1] = states[j+1],
			states[i+1]
	})
	var out []*node
	for i, p := range states {
		for range g.r.IntN(3) {
			if n := g.parserStatement(p.s); n != nil {
				p.body = append(p.body, n)
			}
		}
		var next []string
		for _, q := range states[i+1:] {
			next = append(next, q.name)
		}
		next = append(next, "accept")
		if g.f.Verify && g.oneIn(4) {
			next = append(next, "reject")
		}
		forward := func() string { return next[g.r.IntN(min(len(next), 4))] }
		var transition *node
		switch {
		case p.loop != "":
			transition = fixedBlock(fmt.Sprintf("transition select(h.%s.last.more) {", p.loop),
				[]*node{keep(fmt.Sprintf("3w0: %s;", forward())),
					line(fmt.Sprintf("3w1: %s;", forward())),
					line(fmt.Sprintf("%s: %s;", pick(g, []string{"3w4 &&& 3w4", "2 .. 5"}),
						p.name)),
					keep(fmt.Sprintf("default: %s;", pick(g, []string{p.name, forward()})))}, "}")
		case len(next) == 1 || g.oneIn(6):
			transition = keep("transition " + forward() + ";")
		default:
			transition = g.selection(p.s, forward)
		}
		out = append(out, fixedBlock("state "+p.name+" {", append(p.body, transition), "}"))
	}
	start := keep("state start { transition eth; }")
	if g.f.CPU {
		start = keep(fmt.Sprintf(
			"state start {\n    transition select(sm.ingress_port) {\n        %d: packet_out;\n        default: eth;\n    }\n}\nstate packet_out {\n    pkt.extract(h.packet_out);\n    transition eth;\n}", CPUPort))
	}
	top := []*node{}
	for _, v := range g.valueSets {
		top = append(top, line(fmt.Sprintf("value_set<%s>(4) %s;", v.t, v.name)))
	}
	return fixedBlock(
		"parser P(packet_in pkt, out headers_t h, inout metadata_t m, inout standard_metadata_t sm) {", append(append(top, start), out...), "}\n")
}

// selection generates a select. Its first part is often the first byte of the packet, so that
// random frames take many paths.
func (g *gen) selection(s *scope, forward func() string) *node {
	type part struct {
		expr string
		w    int
	}
	var parts []part
	var candidates []value
	for _, v := range g.plain(s) {
		if !v.t.signed {
			candidates = append(candidates, v)
		}
	}
	for i := range 1 + g.r.IntN(3) {
		switch {
		case i == 0 && !g.oneIn(3):
			lo := g.r.IntN(6)
			parts = append(parts, part{fmt.Sprintf("h.eth.sel[%d:%d]", lo+2, lo), 3})
		case g.f.Lookahead && g.oneIn(3):
			w := pick(g, narrow)
			parts = append(parts, part{fmt.Sprintf("pkt.lookahead<bit<%d>>()", w), w})
		default:
			v := pick(g, candidates)
			if v.t.w > 4 && g.oneIn(2) {
				parts = append(parts, part{fmt.Sprintf("%s[%d:%d]", v.expr, 2, 0), 3})
			} else {
				parts = append(parts, part{v.expr, v.t.w})
			}
		}
	}
	small := func(w int) uint64 { return g.r.Uint64N(1 << min(w, 3)) }
	set := func(p part) string {
		lo := small(p.w)
		switch g.r.IntN(6) {
		case 0:
			return "_"
		case 1:
			return fmt.Sprintf("%dw%d &&& %dw%d", p.w, lo, p.w, small(p.w))
		case 2:
			if p.w < 64 {
				return fmt.Sprintf("%dw%d .. %dw%d", p.w, lo, p.w,
					min(lo+g.r.Uint64N(5), 1<<min(p.w, 60)-1))
			}
		}
		return fmt.Sprintf("%dw%d", p.w, lo)
	}
	tuple := func(f func(p part) string) string {
		var list []string
		for _, p := range parts {
			list = append(list, f(p))
		}
		if len(list) == 1 {
			return list[0]
		}
		return "(" + strings.Join(list, ", ") + ")"
	}
	var cases []*node
	for range 1 + g.r.IntN(4) {
		label := tuple(set)
		if strings.Trim(label, "(), _") == "" && !g.f.TwoWays {
			continue
		}
		cases = append(cases, line(fmt.Sprintf("%s: %s;", label, forward())))
	}
	if len(g.valueSets) > 0 && g.oneIn(2) {
		for i, p := range parts {
			if p.w == 3 && strings.HasPrefix(p.expr, "h.eth.sel") && len(parts) == 1 {
				parts[i] = part{"h.eth.sel", 8}
				cases = []*node{line(fmt.Sprintf("%s: %s;", g.valueSets[0].name, forward())),
					line(fmt.Sprintf("8w%d: %s;", g.r.IntN(4), forward()))}
			}
		}
	}
	if g.f.TwoWays && g.oneIn(2) {
		cases = append(cases, line(fmt.Sprintf("%s: %s;", tuple(func(p part) string {
			if p.w < 16 && g.oneIn(2) {
				return fmt.Sprintf("0 .. %d", 1<<p.w-1)
			}
			return "_"
		}), forward())))
	}
	if !g.f.Verify || !g.oneIn(4) {
		cases = append(cases, keep(fmt.Sprintf("default: %s;", forward())))
	}
	if len(cases) == 0 {
		cases = append(cases, keep(fmt.Sprintf("default: %s;", forward())))
	}
	on := tuple(func(p part) string { return p.expr })
	if len(parts) == 1 {
		on = "(" + on + ")"
	}
	return fixedBlock("transition select"+on+" {", cases, "}")
}

func (g *gen) parserStatement(s *scope) *node {
	switch g.r.IntN(5) {
	case 0:
		if g.f.Verify {
			return line(fmt.Sprintf("verify(%s, error.%s);", g.cond(s, 2),
				pick(g, []string{"Odd", "Even"})))
		}
	case 1:
		if g.f.Lookahead {
			f := pick(g, g.meta)
			w := pick(g, narrow)
			return line(fmt.Sprintf("m.%s = %s;", f.name,
				cast(fmt.Sprintf("pkt.lookahead<bit<%d>>()", w), bits(w), f.t)))
		}
	case 2:
		if g.f.Lookahead && g.oneIn(3) {
			if g.oneIn(2) {
				return line(fmt.Sprintf("pkt.advance(%d);", 8*(1+g.r.IntN(3))))
			}
			return line("pkt.advance(((bit<32>)h.eth.way[1:0]) << 3);")
		}
	}
	p := pick(g, g.places(s))
	return line(fmt.Sprintf("%s = %s;", p.expr, g.expr(s, p.t, 2)))
}
