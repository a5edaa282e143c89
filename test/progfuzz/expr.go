package progfuzz

import (
	"fmt"
	"math/big"
	"slices"
)

// typ is the P4 type bit<w> or int<w>.
type typ struct {
	w      int
	signed bool
}

func (t typ) String() string {
	if t.signed {
		return fmt.Sprintf("int<%d>", t.w)
	}
	return fmt.Sprintf("bit<%d>", t.w)
}

func bits(w int) typ { return typ{w: w} }

// value is an expression that can be read. A place has the same Go type, and can also be written.
type value struct {
	expr string
	t    typ
	of   string // the header that contains the value and that may be invalid; "" if there is none
}

// scope is the set of everything that one position in the program can name.
type scope struct {
	parser, egress, action bool
	pure                   bool // inside a function, which sees only its parameters
	sub                    bool // inside a control that ingress and egress may both use
	locals                 []value
	params                 []value  // parameters that can only be read
	valid                  []string // headers that are certainly valid here
	headers                []*header
}

// with returns the scope in which the given header is also valid.
func (s *scope) with(header string) *scope {
	c := *s
	c.valid = append(slices.Clone(s.valid), header)
	return &c
}

// oneIn returns true with a probability of 1/n.
func (g *gen) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func pick[T any](g *gen, list []T) T { return list[g.r.IntN(len(list))] }

var narrow = []int{1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 12, 13, 15, 16, 16, 16, 17, 20, 24, 31, 32, 32,
	32, 33, 40, 47, 48, 48, 55, 63, 64, 64}
var broad = []int{65, 72, 80, 96, 100, 127, 128, 128, 129, 160, 191, 256}

func (g *gen) width() int {
	if g.f.Wide && g.oneIn(6) {
		return pick(g, broad)
	}
	return pick(g, narrow)
}

func (g *gen) typ() typ {
	t := typ{g.width(), g.f.Signed && g.oneIn(4)}
	if t.w == 1 && !g.f.Loose { // BMv2 has no int<1>
		t.signed = false
	}
	return t
}

// literal generates a constant of a type, often one at the edge of the type's range.
func (g *gen) literal(t typ) string {
	n := new(big.Int)
	top := new(big.Int).Lsh(big.NewInt(1), uint(t.w))
	switch g.r.IntN(6) {
	case 0:
	case 1, 2:
		n.SetInt64(int64(1 + g.r.IntN(5)))
	case 3:
		n.Sub(top, big.NewInt(1))
	case 4:
		n.Rsh(top, 1)
	default:
		for range (t.w + 63) / 64 {
			n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(g.r.Uint64()))
		}
	}
	n.Mod(n, top)
	if !t.signed {
		return fmt.Sprintf("%dw%d", t.w, n)
	}
	if t.w == 1 {
		return fmt.Sprintf("(int<1>)1w%d", n)
	}
	if n.Bit(t.w-1) == 1 { // n is negative.
		return fmt.Sprintf("(int<%d>)%dw%d", t.w, t.w, n)
	}
	return fmt.Sprintf("%ds%d", t.w, n)
}

// values returns the readable values.
func (g *gen) values(s *scope) []value {
	list := append(slices.Clone(s.locals), s.params...)
	if s.pure {
		return list
	}
	for _, f := range g.meta {
		// BMv2 parses a clone with the metadata of an earlier packet, so metadata is not read here.
		if s.parser && g.f.CloneI2E && !g.f.Loose {
			break
		}
		list = append(list, value{"m." + f.name, f.t, ""})
	}
	for _, h := range s.headers {
		if s.parser && !slices.Contains(s.valid, h.expr) && !g.f.Loose {
			continue
		}
		for _, f := range h.t.fields {
			list = append(list, value{h.expr + "." + f.name, f.t, h.expr})
		}
	}
	switch {
	case s.sub:
		list = append(list, value{"sm.ingress_port", bits(9), ""})
	case s.parser:
		list = append(list, value{"sm.ingress_port", bits(9), ""})
	case s.egress:
		list = append(list, value{"sm.egress_port", bits(9), ""},
			value{"sm.egress_rid", bits(16), ""}, value{"sm.instance_type", bits(32), ""},
			value{"sm.packet_length", bits(32), ""},
			value{"sm.ingress_port", bits(9), ""})
	default:
		list = append(list, value{"sm.ingress_port", bits(9), ""},
			value{"sm.packet_length", bits(32), ""}, value{"sm.instance_type", bits(32), ""},
			value{"sm.checksum_error", bits(1), ""})
	}
	return list
}

// plain returns the values that can be read without a guard. They are in no header, or in a header
// that is certainly valid.
func (g *gen) plain(s *scope) (list []value) {
	for _, v := range g.values(s) {
		if v.of == "" || g.f.Loose || slices.Contains(s.valid, v.of) {
			list = append(list, v)
		}
	}
	return list
}

// places returns the values that can be written.
func (g *gen) places(s *scope) []value {
	list := slices.Clone(s.locals)
	for _, f := range g.meta {
		list = append(list, value{"m." + f.name, f.t, ""})
	}
	for _, h := range s.headers {
		if s.parser && !slices.Contains(s.valid, h.expr) {
			continue
		}
		for _, f := range h.t.fields {
			list = append(list, value{h.expr + "." + f.name, f.t, h.expr})
		}
	}
	return list
}

// read generates a read of a value, with a guard if it needs one.
func (g *gen) read(s *scope, v value) string {
	if v.of == "" || g.f.Loose || slices.Contains(s.valid, v.of) {
		return v.expr
	}
	return fmt.Sprintf("(%s.isValid() ? %s : %s)", v.of, v.expr, g.literal(v.t))
}

// cast generates the conversion of an expression to another type.
func cast(expr string, from, to typ) string {
	if from == to {
		return expr
	}
	if from.signed == to.signed {
		return fmt.Sprintf("(%s)%s", to, expr)
	}
	if from.w == to.w {
		return fmt.Sprintf("(%s)%s", to, expr)
	}
	// The conversion goes through an unsigned type of the same width.
	if to.signed {
		return fmt.Sprintf("(%s)(%s)%s", to, bits(to.w), expr)
	}
	return fmt.Sprintf("(%s)(%s)%s", to, bits(from.w), expr)
}

func (g *gen) leaf(s *scope, t typ) string {
	list := g.values(s)
	if len(list) == 0 || g.oneIn(4) {
		return g.literal(t)
	}
	var same []value
	for _, v := range list {
		if v.t == t {
			same = append(same, v)
		}
	}
	if len(same) > 0 && !g.oneIn(3) {
		return g.read(s, pick(g, same))
	}
	v := pick(g, list)
	return cast(g.read(s, v), v.t, t)
}

// expr generates an expression of a type, at most `depth` deep.
func (g *gen) expr(s *scope, t typ, depth int) string {
	if depth <= 0 || g.oneIn(4) {
		return g.leaf(s, t)
	}
	sub := func(t typ) string { return g.expr(s, t, depth-1) }
	type form func() string
	binary := func(ops ...string) form {
		return func() string { return fmt.Sprintf("(%s %s %s)", sub(t), pick(g, ops), sub(t)) }
	}
	forms := []form{
		binary("+", "-"), binary("+", "-"), binary("&", "|", "^"), binary("&", "|", "^"),
		func() string { return fmt.Sprintf("(~%s)", sub(t)) },
		func() string { from := g.typ(); return cast("("+sub(from)+")", from, t) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", g.cond(s, depth-1), sub(t), sub(t)) },
	}
	if g.f.Saturate {
		forms = append(forms, binary("|+|", "|-|"), binary("|+|", "|-|"))
	}
	if g.f.Multiply {
		forms = append(forms, binary("*"))
	}
	if g.f.Signed {
		forms = append(forms, func() string { return fmt.Sprintf("(-%s)", sub(t)) },
			func() string { o := typ{t.w, !t.signed}; return fmt.Sprintf("((%s)%s)", t, sub(o)) })
	}
	if g.f.Shift {
		shift := func() string {
			by := fmt.Sprintf("%d", g.r.IntN(t.w+2))
			if g.oneIn(2) {
				by = "(" + g.expr(s, bits(1+g.r.IntN(8)), depth-1) + ")"
			}
			return fmt.Sprintf("(%s %s %s)", sub(t), pick(g, []string{"<<", ">>"}), by)
		}
		forms = append(forms, shift, shift)
	}
	if g.f.Concat && !t.signed {
		forms = append(forms, func() string {
			w := t.w + g.r.IntN(20)
			low := g.r.IntN(w - t.w + 1)
			return fmt.Sprintf("(%s)[%d:%d]", sub(bits(w)), low+t.w-1, low)
		})
		if t.w > 1 {
			forms = append(forms, func() string {
				left := 1 + g.r.IntN(t.w-1)
				return fmt.Sprintf("(%s ++ %s)", sub(bits(left)), sub(bits(t.w-left)))
			})
		}
	}
	for _, f := range g.functions {
		if f.result == t && !s.parser && !s.pure {
			forms = append(forms, func() string {
				return fmt.Sprintf("%s(%s, %s)", f.name,
					sub(f.in[0]), sub(f.in[1]))
			})
		}
	}
	return pick(g, forms)()
}

// cond generates an expression of type bool.
func (g *gen) cond(s *scope, depth int) string {
	if depth > 1 && g.oneIn(3) {
		a, b := g.cond(s, depth-1), g.cond(s, depth-1)
		switch g.r.IntN(3) {
		case 0:
			return fmt.Sprintf("(%s && %s)", a, b)
		case 1:
			return fmt.Sprintf("(%s || %s)", a, b)
		default:
			return fmt.Sprintf("(!%s)", a)
		}
	}
	if !s.parser && !s.pure && g.oneIn(5) {
		h := pick(g, s.headers)
		if g.oneIn(4) && h.t.varbit == 0 {
			for _, o := range s.headers {
				if o.t == h.t && o != h {
					return fmt.Sprintf("(%s %s %s)", h.expr, pick(g, []string{"==", "!="}), o.expr)
				}
			}
		}
		return h.expr + ".isValid()"
	}
	list := g.values(s)
	t := g.typ()
	if len(list) > 0 && !g.oneIn(3) {
		t = pick(g, list).t
	}
	ops := []string{"==", "!=", "<", "<=", ">", ">="}
	if g.oneIn(2) && t.w > 3 && !t.signed {
		// compare only a few bits, because these are equal more often
		hi := g.r.IntN(min(t.w, 60))
		lo := max(0, hi-g.r.IntN(3))
		return fmt.Sprintf("((%s)[%d:%d] %s %d)", g.leaf(s, t), hi, lo, pick(g, ops),
			g.r.IntN(1<<(hi-lo+1)))
	}
	return fmt.Sprintf("(%s %s %s)", g.expr(s, t, depth-1), pick(g, ops), g.expr(s, t, depth-1))
}
