package progfuzz

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// gen is a program while it is being generated.
type gen struct {
	r         *rand.Rand
	f         Features
	types     []*headerType
	eth       *header   // the first header of every packet
	headers   []*header // headers that the parser extracts or the program makes valid
	stacks    []*stack
	unions    []*union
	meta      []field
	functions []function
	valueSets []field  // names and widths of the value sets
	subs      []string // controls that other controls can use
	names     int
	lists     int // number of field lists
}

type field struct {
	name string
	t    typ
}

type headerType struct {
	name   string
	fields []field
	// varbit is the largest width of the last field, if that field is a varbit. Otherwise it is 0.
	varbit int
}

type header struct {
	expr  string
	t     *headerType
	union *union
}

type stack struct {
	name string
	t    *headerType
	size int
}

// union is a header union of the program.
type union struct {
	name    string
	members []*header
}

type function struct {
	name   string
	result typ
	in     [2]typ
}

// CPUPort is the port to the controller, in programs that have such a port. Ports is the number of
// ports with interfaces. Groups and Sessions are the numbers of multicast groups and clone sessions
// that tests must fill. maxRounds is a limit.
const (
	CPUPort  = 510
	Ports    = 4 // the ports are 1 to 4
	Groups   = 4 // the groups are 1 to 4
	Sessions = 3 // the sessions are 1 to 3
	// how often a packet and all its copies together may request a copy, or request to come back to
	// ingress
	maxRounds = 2
)

// Generate generates the program that belongs to a seed.
func Generate(seed uint64) *Program {
	r := rand.New(rand.NewPCG(seed, 0x70726f67))
	f := draw(r)
	g := &gen{r: r, f: f, lists: 3}
	p := &Program{Seed: seed, Features: f}
	g.drawTypes()
	p.top = append(p.top, keep(fmt.Sprintf("// Program %d: %s", seed, f)),
		keep("#include <core.p4>\n#include <v1model.p4>\n"))
	if f.Verify {
		p.top = append(p.top, keep("error { Odd, Even }\n"))
	}
	p.top = append(p.top, g.declareTypes()...)
	if f.Call {
		for range 2 {
			p.top = append(p.top, g.function())
		}
	}
	parser := g.parser()
	verify := g.checksums("V", "verify_checksum")
	update := g.checksums("C", "update_checksum")
	if f.Call && g.oneIn(2) {
		p.top = append(p.top, g.control("Sub", false, true))
		g.subs = append(g.subs, "Sub")
	}
	ingress := g.control("I", false, false)
	egress := g.control("E", true, false)
	p.top = append(p.top, parser, verify, ingress, egress, update, g.deparser(),
		keep("V1Switch(P(), V(), I(), E(), C(), D()) main;"))
	return p
}

func (g *gen) name(prefix string) string {
	g.names++
	return fmt.Sprintf("%s%d", prefix, g.names)
}

// fieldsOf generates fields with a given total number of bits.
func (g *gen) fieldsOf(total int) (list []field) {
	for left := total; left > 0; {
		t := g.typ()
		t.w = min(t.w, left)
		if t.w == 1 {
			t.signed = false
		}
		left -= t.w
		list = append(list, field{fmt.Sprintf("f%d", len(list)), t})
	}
	return list
}

func (g *gen) drawTypes() {
	eth := &headerType{name: "eth_t", fields: append([]field{{"sel", bits(8)}, {"way", bits(8)}},
		g.fieldsOf(96+8*g.r.IntN(5))...)}
	g.eth = &header{expr: "h.eth", t: eth}
	g.headers = append(g.headers, g.eth)
	g.types = append(g.types, eth)
	for i := range 2 + g.r.IntN(3) {
		t := &headerType{name: fmt.Sprintf("t%d_t", i), fields: g.fieldsOf(8 * (1 + g.r.IntN(12)))}
		if g.f.Wide && g.oneIn(3) {
			t.fields = g.fieldsOf(8 * (12 + g.r.IntN(30)))
		}
		g.types = append(g.types, t)
	}
	for i := range 1 + g.r.IntN(3) {
		g.headers = append(g.headers, &header{expr: fmt.Sprintf("h.h%d", i),
			t: pick(g, g.types[1:])})
	}
	small := g.types[1]
	if g.f.Stack {
		for i := range 1 + g.r.IntN(2) {
			s := &stack{name: fmt.Sprintf("s%d", i), t: pick(g, g.types[1:]), size: 1 + g.r.IntN(4)}
			if i == 0 && g.f.Loop { // the parser's loop depends on a bit of each element
				s.t = &headerType{name: "loop_t", fields: append([]field{{"more", bits(3)}},
					g.fieldsOf(5+8*g.r.IntN(3))...)}
				g.types = append(g.types, s.t)
			}
			g.stacks = append(g.stacks, s)
		}
	}
	if g.f.Union {
		u := &union{name: "u"}
		for i := range 2 + g.r.IntN(2) {
			t := small
			if i > 0 {
				t = pick(g, g.types[1:])
			}
			u.members = append(u.members, &header{expr: fmt.Sprintf("h.u.m%d", i), t: t, union: u})
		}
		g.unions = append(g.unions, u)
	}
	if g.f.Varbit {
		t := &headerType{name: "vb_t", fields: g.fieldsOf(8 * (1 + g.r.IntN(3))),
			varbit: 8 * (1 + g.r.IntN(20))}
		g.types = append(g.types, t)
		g.headers = append(g.headers, &header{expr: "h.vb", t: t})
	}
	for i := range 3 + g.r.IntN(4) {
		g.meta = append(g.meta, field{fmt.Sprintf("m%d", i), g.typ()})
	}
	if g.f.ValueSet {
		g.valueSets = append(g.valueSets, field{"vs", bits(8)})
	}
}

// all returns the headers that the program can name, including elements of stacks and members of
// unions.
func (g *gen) all() []*header {
	list := append([]*header{}, g.headers...)
	for _, s := range g.stacks {
		for i := range s.size {
			list = append(list, &header{expr: fmt.Sprintf("h.%s[%d]", s.name, i), t: s.t})
		}
	}
	for _, u := range g.unions {
		list = append(list, u.members...)
	}
	return list
}

func (g *gen) declareTypes() (top []*node) {
	for _, t := range g.types {
		var lines []string
		for _, f := range t.fields {
			lines = append(lines, fmt.Sprintf("    %s %s;", f.t, f.name))
		}
		if t.varbit > 0 {
			lines = append(lines, fmt.Sprintf("    varbit<%d> v;", t.varbit))
		}
		top = append(top, keep(fmt.Sprintf("header %s {\n%s\n}\n", t.name,
			strings.Join(lines, "\n"))))
	}
	if g.f.CPU {
		top = append(top,
			keep(
				"@controller_header(\"packet_out\")\nheader packet_out_t {\n    bit<9> port;\n    bit<7> pad;\n}\n"),
			keep(
				"@controller_header(\"packet_in\")\nheader packet_in_t {\n    bit<9> port;\n    bit<7> pad;\n}\n"))
	}
	for _, u := range g.unions {
		var lines []string
		for i, m := range u.members {
			lines = append(lines, fmt.Sprintf("    %s m%d;", m.t.name, i))
		}
		top = append(top, keep(fmt.Sprintf("header_union %s_t {\n%s\n}\n", u.name,
			strings.Join(lines, "\n"))))
	}
	// These statements record the program's state for a packet at the end of egress.
	var seen []*node
	width := 0
	for _, f := range append(standard, g.meta...) {
		seen = append(seen, keep(fmt.Sprintf("%s %s;", f.t, f.name)))
		width += f.t.w
	}
	if width%8 != 0 {
		seen = append(seen, keep(fmt.Sprintf("bit<%d> pad;", 8-width%8)))
	}
	top = append(top, fixedBlock("header seen_t {", seen, "}\n"))
	var fields []*node
	for _, h := range g.headers {
		fields = append(fields, line(fmt.Sprintf("%s %s;", h.t.name, h.expr[2:])))
	}
	for _, s := range g.stacks {
		fields = append(fields, line(fmt.Sprintf("%s[%d] %s;", s.t.name, s.size, s.name)))
	}
	for _, u := range g.unions {
		fields = append(fields, line(fmt.Sprintf("%s_t %s;", u.name, u.name)))
	}
	g.r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	fields = append(fields, keep("seen_t seen;"))
	if g.f.CPU {
		fields = append(fields, keep("packet_out_t packet_out;\npacket_in_t packet_in;"))
	}
	top = append(top, fixedBlock("struct headers_t {", fields, "}\n"))
	var meta []*node
	for _, f := range g.meta {
		annotation := ""
		if n := g.r.IntN(8); n > 0 && (g.f.clones() || g.f.back()) {
			var in []string
			for i := range g.lists {
				if n>>i&1 == 1 {
					in = append(in, fmt.Sprint(i+1))
				}
			}
			annotation = fmt.Sprintf("@field_list(%s) ", strings.Join(in, ", "))
		}
		meta = append(meta, line(fmt.Sprintf("%s%s %s;", annotation, f.t, f.name)))
	}
	if g.f.clones() || g.f.back() {
		meta = append(meta, keep("@field_list(1, 2, 3) bit<8> rounds;"))
	}
	top = append(top, fixedBlock("struct metadata_t {", meta, "}\n"))
	if g.f.Digest {
		top = append(top, line(fmt.Sprintf("struct digest_t {\n    %s a;\n    bit<9> b;\n}\n",
			bits(g.meta[0].t.w))))
	}
	return top
}

// standard are the fields of standard_metadata that the program copies into each frame that leaves.
var standard = []field{{"instance_type", bits(32)}, {"packet_length", bits(32)},
	{"ingress_port", bits(9)}, {"egress_port", bits(9)}, {"egress_rid", bits(16)},
	{"checksum_error", bits(1)}}

func (g *gen) function() *node {
	f := function{g.name("fn"), g.typ(), [2]typ{g.typ(), g.typ()}}
	s := &scope{params: []value{{"x", f.in[0], ""}, {"y", f.in[1], ""}}, pure: true}
	var body []*node
	if g.oneIn(2) {
		body = append(body, block("if ("+g.cond(s, 2)+") {",
			[]*node{line("return " + g.expr(s, f.result, 2) + ";")}, "}"))
	}
	body = append(body, keep("return "+g.expr(s, f.result, 3)+";"))
	n := block(fmt.Sprintf("%s %s(in %s x, in %s y) {", f.result, f.name, f.in[0], f.in[1]), body,
		"}\n")
	g.functions = append(g.functions, f)
	return n
}

func (g *gen) deparser() *node {
	var emits []*node
	for _, h := range g.headers[1:] {
		emits = append(emits, line("pkt.emit("+h.expr+");"))
	}
	for _, s := range g.stacks {
		emits = append(emits, line("pkt.emit(h."+s.name+");"))
	}
	for _, u := range g.unions {
		emits = append(emits, line("pkt.emit(h."+u.name+");"))
	}
	g.r.Shuffle(len(emits), func(i, j int) { emits[i], emits[j] = emits[j], emits[i] })
	first := []*node{keep("pkt.emit(h.eth);")}
	if g.f.CPU {
		first = []*node{keep("pkt.emit(h.packet_in);"), keep("pkt.emit(h.eth);")}
	}
	return fixedBlock("control D(packet_out pkt, in headers_t h) {",
		[]*node{fixedBlock("apply {", append(append(first, emits...), line("pkt.emit(h.seen);")),
			"}")}, "}\n")
}

// checksums generates the control that verifies or updates checksums.
func (g *gen) checksums(name, call string) *node {
	var body []*node
	if g.f.Checksum {
		for range 1 + g.r.IntN(2) {
			if n := g.checksum(call); n != nil {
				body = append(body, n)
			}
		}
	}
	return fixedBlock(fmt.Sprintf("control %s(inout headers_t h, inout metadata_t m) {", name),
		[]*node{fixedBlock("apply {", body, "}")}, "}\n")
}

func (g *gen) checksum(call string) *node {
	for range 10 {
		h := pick(g, g.headers)
		if h.t.varbit > 0 {
			continue
		}
		for _, f := range h.t.fields {
			if f.t != bits(16) {
				continue
			}
			s := &scope{valid: []string{g.eth.expr, h.expr}, headers: []*header{g.eth, h}}
			var in []string
			var total int
			for _, v := range g.plain(s) {
				if v.expr == h.expr+"."+f.name || strings.HasPrefix(v.expr, "sm.") || g.oneIn(2) ||
					len(in) > 7 {
					continue
				}
				in, total = append(in, v.expr), total+v.t.w
				if g.oneIn(4) {
					w := 8
					if g.f.OddHash {
						w = pick(g, narrow)
					}
					in, total = append(in, g.literal(bits(w))), total+w
				}
			}
			if rest := total % 16; rest != 0 && !g.f.OddHash {
				in = append(in, g.literal(bits(16-rest)))
			}
			if len(in) == 0 {
				in = append(in, g.literal(bits(16)))
			}
			cond := h.expr + ".isValid()"
			if g.oneIn(3) {
				cond += fmt.Sprintf(" && h.eth.way[1:0] != %d", g.r.IntN(4))
			}
			if g.oneIn(4) {
				call += "_with_payload"
			}
			return line(fmt.Sprintf("%s(%s, { %s }, %s.%s, HashAlgorithm.csum16);", call, cond,
				strings.Join(in, ", "), h.expr, f.name))
		}
	}
	return nil
}
