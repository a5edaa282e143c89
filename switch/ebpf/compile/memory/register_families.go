package memory

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/affine"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// family is a group of registers that a packet selects by the same number, for example, a session
// number. A register has scale cells for each number, so cell i belongs to the number i/scale. A
// packet that holds a number's stripe may use the cells of that number.
type family struct {
	Stripes int    // offset of the register family's stripes in the state
	Bound   uint64 // all numbers that have a cell are less than this
	alone   bool   // the register family is a single one-word register
	// Single is set if the register family is alone and a packet writes at most one of its cells. A
	// packet that holds stripes of other families and only reads one cell of this family needs no
	// stripe for the read (locking/stripes.go).
	Single bool
}

// Member is a register's membership in a register family: the family, and the register's scale.
type Member struct {
	Family int
	Scale  uint64
}

const (
	mostFamilies = 4
	StripeBytes  = 64 // one cache line: the lock, followed by the version
)

// planFamilies groups registers by how the program computes their indices. An index can be a field,
// or a factor times the field plus a number below the factor. The grouping is a guess, made once
// for all programs that are compiled from the plan. Each compilation checks whether the program's
// packets conform to it (findNeeds).
func (p *Plan) planFamilies() {
	if runtime.GOARCH != "amd64" || len(p.Prog.Registers) == 0 {
		return
	}
	if q := p.Prog.Pipeline("egress"); q != nil && slices.ContainsFunc(analysis.Nodes(q), analysis.TouchesRegister) {
		// If egress uses registers, there are no register families. Egress locks registers
		// separately from ingress, and only with the global lock.
		return
	}
	q := p.Prog.Pipeline("ingress")
	if q == nil {
		return
	}
	p.planRanges()
	for _, r := range p.Prog.Registers {
		p.LargestRegister = max(p.LargestRegister, r.Size, 1)
	}
	var w affine.Evaluator
	open := map[int]bool{}
	w = affine.Evaluator{Bound: uint64(p.LargestRegister),
		Field: func(r bmv2json.FieldRef) affine.Form { return p.WhereverRead(w, r, open) }}
	names, of := map[string]int{}, make([]string, len(p.Prog.Registers))
	p.Members = make([]Member, len(p.Prog.Registers))
	for i := range p.Members {
		p.Members[i] = Member{-1, 1}
	}
	for _, n := range analysis.Nodes(q) {
		for _, a := range analysis.ActionsOf(n) {
			for _, e := range a.Primitives {
				r, index, ok := analysis.RegisterOf(e)
				if !ok {
					continue
				}
				name, scale := fmt.Sprintf("register %d", r.Index), uint64(1)
				if k := w.Evaluate(index); k.Base != nil {
					name, scale = k.Key, k.Scale
				}
				if before := of[r.Index]; before != "" && (before != name ||
					p.Members[r.Index].Scale != scale) {
					name, scale = fmt.Sprintf("register %d", r.Index), 1
				}
				of[r.Index], p.Members[r.Index].Scale = name, scale
			}
		}
	}
	for i, name := range of {
		if name == "" {
			continue
		}
		r, m := p.Prog.Registers[i], &p.Members[i]
		f, seen := names[name]
		if !seen {
			f = len(p.Families)
			names[name] = f
			p.Families = append(p.Families, family{})
		}
		m.Family = f
		fam := &p.Families[f]
		fam.alone = !seen && !ir.Wide(r.Width)
		fam.Bound = max(fam.Bound, (uint64(r.Size)+m.Scale-1)/m.Scale)
	}
	if len(p.Families) == 0 || len(p.Families) > mostFamilies {
		p.Families = nil
		return
	}
	p.findSingle(q)
	p.StripeCount = 1 << bits.Len(uint(16*runtime.NumCPU()-1))
	p.StripeCount = min(max(p.StripeCount, 64), 1024)
	p.Stripes = p.allocate(len(p.Families) * p.StripeCount * StripeBytes)
	for i := range p.Families {
		p.Families[i].Stripes = p.Stripes + i*p.StripeCount*StripeBytes
	}
}

// mostRows is the largest number of bytes of the state that the rows of a register family may
// occupy.
const mostRows = 1 << 19

// planRegisters reserves space for registers. If a register family is small, all cells of one
// number lie in one row, which is a cache line. Other CPUs, whose packets have other numbers, then
// do not touch this line, although numbers are often neighbours. For example, sessions are leased
// one after the other. A packet also fetches one line instead of one line for each register.
func (p *Plan) planRegisters() {
	p.Registers = make([]ArrayPlan, len(p.Prog.Registers))
	for i, r := range p.Prog.Registers {
		cell := ir.SlotSize(r.Width)
		p.Registers[i] = ArrayPlan{Cell: cell, Size: r.Size, Stride: cell}
	}
	for f := range p.Families {
		row, numbers := 0, 0
		for i, m := range p.Members {
			if a := &p.Registers[i]; m.Family == f && m.Scale == 1 {
				align := min(a.Cell, 8)
				a.Off = (row + align - 1) / align * align // offset within the row
				row, numbers = a.Off+a.Cell, max(numbers, a.Size)
			}
		}
		if row == 0 || row > StripeBytes || numbers*StripeBytes > mostRows {
			continue
		}
		rows := p.allocate(numbers * StripeBytes)
		for i, m := range p.Members {
			if m.Family == f && m.Scale == 1 {
				p.Registers[i].Off += rows
				p.Registers[i].Stride = StripeBytes
			}
		}
	}
	for i := range p.Registers {
		if a := &p.Registers[i]; a.Stride == a.Cell {
			a.Off = p.allocate(a.Cell * a.Size)
		}
	}
}

// findSingle chooses the register family that is marked Single. Of the possible families, it takes
// the family with the fewest numbers, because packets are most likely to share these. With two such
// families, a packet's read in one and its write in the other would not be atomic.
func (p *Plan) findSingle(q *bmv2json.Pipeline) {
	var single *family
	for f := range p.Families {
		fam := &p.Families[f]
		if fam.alone && (single == nil || fam.Bound < single.Bound) && p.mostWrites(q, f) <= 1 {
			single = fam
		}
	}
	if single != nil {
		single.Single = true
	}
}

// mostWrites returns the largest number of cells of a register family that a packet writes.
func (p *Plan) mostWrites(q *bmv2json.Pipeline, family int) (most int) {
	behind := map[bmv2json.Node]int{}
	for _, n := range slices.Backward(analysis.Nodes(q)) {
		own := 0
		for _, a := range analysis.ActionsOf(n) {
			writes := 0
			for _, e := range a.Primitives {
				r, _, ok := analysis.RegisterOf(e)
				if ok && e.Op == "register_write" && p.Members[r.Index].Family == family {
					writes++
				}
			}
			own = max(own, writes)
		}
		for _, s := range analysis.Successors(n) {
			if s != nil {
				behind[n] = max(behind[n], behind[s])
			}
		}
		behind[n] += own
		most = max(most, behind[n])
	}
	return most
}

// StripeMask returns a mask of the significant bits of a stripe's offset in its register family.
// Bit 0 says whether there is a stripe.
func (p *Plan) StripeMask() int32 { return int32((p.StripeCount - 1) * StripeBytes) }

// HeldStripe returns the offset in the PHV at which a packet notes its stripe of a register family.
func (p *Plan) HeldStripe(family int) int { return p.held + 16*family }

// HeldVersion returns the offset in the PHV at which a packet notes the version of its stripe of a
// register family.
func (p *Plan) HeldVersion(family int) int { return p.held + 16*family + 8 }

// Locks returns the offsets of all locks in the state that a packet may hold. A free lock contains
// 0.
func (p *Plan) Locks() []int {
	locks := []int{p.Lock}
	for i := range len(p.Families) * p.StripeCount {
		locks = append(locks, p.Stripes+i*StripeBytes)
	}
	return locks
}

// StripesBytes returns the total size of all stripes.
func (p *Plan) StripesBytes() int { return len(p.Families) * p.StripeCount * StripeBytes }
