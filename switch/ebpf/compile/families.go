package compile

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// family is registers that a packet takes by one number: a cell i of such a register belongs to the
// number i/scale, where scale is the register's. Whoever has a number's stripe has its cells.
type family struct {
	stripes int    // where its stripes are in the state
	bound   uint64 // no number that has a cell is as large
	alone   bool   // it is one register, of a word
	// It is alone, and a packet writes at most one cell of it: who has stripes of others, and only
	// reads one cell of it, needs no stripe for that (stripes.go).
	single bool
}

// member is the family that a register is of, and its scale.
type member struct {
	family int
	scale  uint64
}

const (
	mostFamilies = 4
	stripeBytes  = 64 // a cache line: the lock, and behind it the version
)

// planFamilies finds what registers belong together, by what the program makes their indices of:
// from the same field, or from as many times the same field and less than one time more. It is a
// guess, made once for all programs that are made of the plan; whether the packets of one of them
// really keep to it is found out when that one is made (findNeeds).
func (p *Plan) planFamilies() {
	if runtime.GOARCH != "amd64" || len(p.Prog.Registers) == 0 {
		return
	}
	if q := p.Prog.Pipeline("egress"); q != nil && slices.ContainsFunc(nodes(q), touchesRegister) {
		return // a second section, with the one lock
	}
	q := p.Prog.Pipeline("ingress")
	if q == nil {
		return
	}
	p.planRanges()
	for _, r := range p.Prog.Registers {
		p.cells = max(p.cells, r.Size, 1)
	}
	var w numbers
	open := map[int]bool{}
	w = numbers{uint64(p.cells), func(r bmv2json.FieldRef) number { return p.whereverRead(w, r, open) }}
	names, of := map[string]int{}, make([]string, len(p.Prog.Registers))
	p.members = make([]member, len(p.Prog.Registers))
	for i := range p.members {
		p.members[i] = member{-1, 1}
	}
	for _, n := range nodes(q) {
		for _, a := range actionsOf(n) {
			for _, e := range a.Primitives {
				r, index, ok := registerTaken(e)
				if !ok {
					continue
				}
				name, scale := fmt.Sprintf("register %d", r.Index), uint64(1)
				if k := w.of(index); k.base != nil {
					name, scale = k.key, k.scale
				}
				if before := of[r.Index]; before != "" && (before != name ||
					p.members[r.Index].scale != scale) {
					name, scale = fmt.Sprintf("register %d", r.Index), 1
				}
				of[r.Index], p.members[r.Index].scale = name, scale
			}
		}
	}
	for i, name := range of {
		if name == "" {
			continue
		}
		r, m := p.Prog.Registers[i], &p.members[i]
		f, seen := names[name]
		if !seen {
			f = len(p.families)
			names[name] = f
			p.families = append(p.families, family{})
		}
		m.family = f
		fam := &p.families[f]
		fam.alone = !seen && !ir.Wide(r.Width)
		fam.bound = max(fam.bound, (uint64(r.Size)+m.scale-1)/m.scale)
	}
	if len(p.families) == 0 || len(p.families) > mostFamilies {
		p.families = nil
		return
	}
	p.findSingle(q)
	p.stripes = 1 << bits.Len(uint(16*runtime.NumCPU()-1))
	p.stripes = min(max(p.stripes, 64), 1024)
	p.Stripes = p.allocate(len(p.families) * p.stripes * stripeBytes)
	for i := range p.families {
		p.families[i].stripes = p.Stripes + i*p.stripes*stripeBytes
	}
}

// mostRows bounds how many bytes of the state the rows of a family take.
const mostRows = 1 << 19

// planRegisters makes room for registers. What a packet takes by one number lies in one row, a
// cache line, if the family is small: other CPUs, whose packets have other numbers, leave that line
// alone, though numbers are often neighbours (as sessions are that were leased one after the
// other), and one line is fetched instead of one for each register.
func (p *Plan) planRegisters() {
	p.Registers = make([]ArrayPlan, len(p.Prog.Registers))
	for i, r := range p.Prog.Registers {
		cell := ir.SlotSize(r.Width)
		p.Registers[i] = ArrayPlan{Cell: cell, size: r.Size, Stride: cell}
	}
	for f := range p.families {
		row, numbers := 0, 0
		for i, m := range p.members {
			if a := &p.Registers[i]; m.family == f && m.scale == 1 {
				align := min(a.Cell, 8)
				a.Off = (row + align - 1) / align * align // in the row
				row, numbers = a.Off+a.Cell, max(numbers, a.size)
			}
		}
		if row == 0 || row > stripeBytes || numbers*stripeBytes > mostRows {
			continue
		}
		rows := p.allocate(numbers * stripeBytes)
		for i, m := range p.members {
			if m.family == f && m.scale == 1 {
				p.Registers[i].Off += rows
				p.Registers[i].Stride = stripeBytes
			}
		}
	}
	for i := range p.Registers {
		if a := &p.Registers[i]; a.Stride == a.Cell {
			a.Off = p.allocate(a.Cell * a.size)
		}
	}
}

// registerTaken is the register that a primitive reads or writes, and the index.
func registerTaken(q *bmv2json.Primitive) (r *bmv2json.Register, index *bmv2json.Expr, ok bool) {
	switch {
	case q.Op == "register_read" && len(q.Args) == 3:
		return q.Args[1].Register, q.Args[2], true
	case q.Op == "register_write" && len(q.Args) == 3:
		return q.Args[0].Register, q.Args[1], true
	}
	return nil, nil, false
}

// findSingle chooses the family that is single: of those that can be, the one with the fewest
// numbers, which packets are the likeliest to have in common. Were there two, what a packet reads
// in one and writes in the other would not be one moment.
func (p *Plan) findSingle(q *bmv2json.Pipeline) {
	var single *family
	for f := range p.families {
		fam := &p.families[f]
		if fam.alone && (single == nil || fam.bound < single.bound) && p.mostWrites(q, f) <= 1 {
			single = fam
		}
	}
	if single != nil {
		single.single = true
	}
}

// mostWrites is how many cells of a family a packet writes at most.
func (p *Plan) mostWrites(q *bmv2json.Pipeline, family int) (most int) {
	behind := map[bmv2json.Node]int{}
	for _, n := range slices.Backward(nodes(q)) {
		own := 0
		for _, a := range actionsOf(n) {
			writes := 0
			for _, e := range a.Primitives {
				r, _, ok := registerTaken(e)
				if ok && e.Op == "register_write" && p.members[r.Index].family == family {
					writes++
				}
			}
			own = max(own, writes)
		}
		for _, s := range successors(n) {
			if s != nil {
				behind[n] = max(behind[n], behind[s])
			}
		}
		behind[n] += own
		most = max(most, behind[n])
	}
	return most
}

// planRanges finds what metadata of the program's own is assigned, wherever that is.
func (p *Plan) planRanges() {
	p.assigned, p.otherwise = map[int][]*bmv2json.Expr{}, map[int]bool{}
	field := func(r bmv2json.FieldRef) int {
		if r.IsValidity() {
			return p.Layout.Validity(r.Header)
		}
		return p.Layout.Field(r).Off
	}
	other := func(e *bmv2json.Expr) {
		walk(e, func(x *bmv2json.Expr) {
			switch {
			case x.Op == bmv2json.OpField:
				p.otherwise[field(x.Field)] = true
			case x.Op == bmv2json.OpHeader:
				for _, f := range x.Header.Type.Fields {
					p.otherwise[p.Layout.Field(bmv2json.FieldRef{Header: x.Header, Field: f}).Off] =
						true
				}
			}
		})
	}
	for _, a := range p.Prog.Actions {
		for _, q := range a.Primitives {
			switch q.Op {
			case "assign", "modify_field":
				if dst := q.Args[0]; dst.Op == bmv2json.OpField {
					off := field(dst.Field)
					p.assigned[off] = append(p.assigned[off], q.Args[1])
					continue
				}
				other(q.Args[0])
			case "register_read":
				other(q.Args[0])
			case "register_write", "count", "no_op", "log_msg", "mark_to_drop", "drop", "_jump",
				"_jump_if_zero":
			default:
				for _, e := range q.Args {
					other(e)
				}
			}
		}
	}
	for _, t := range p.Prog.Tables() {
		if t.DirectMeter != nil {
			p.otherwise[field(t.DirectMeter.Result)] = true
		}
	}
	for _, q := range p.Prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				if !o.Dest.IsZero() {
					p.otherwise[field(o.Dest)] = true
				}
				if o.Primitive != nil {
					for _, e := range o.Primitive.Args {
						other(e)
					}
				}
			}
		}
	}
}

// whereverRead is what is known of a field anywhere in the program. Open are the fields that are
// being looked at.
func (p *Plan) whereverRead(w numbers, r bmv2json.FieldRef, open map[int]bool) number {
	if r.IsValidity() {
		return anyNumber()
	}
	off := p.Layout.Field(r).Off
	itself := fieldNumber(p.Layout, r)
	if !r.Header.Metadata || slices.Contains(standardHeaders, r.Header.Name) || p.otherwise[off] ||
		open[off] || len(p.assigned[off]) == 0 {
		return itself
	}
	open[off] = true
	defer delete(open, off)
	all := w.assigned(r.Field, p.assigned[off][0])
	for _, e := range p.assigned[off][1:] {
		all = all.or(w.assigned(r.Field, e))
	}
	switch {
	case all.any() || all.base == nil && all.most == ir.Ones(r.Field.Width):
		return itself
	case all.base == nil:
		return all.or(constantNumber(0)) // as metadata begins
	}
	return all
}
