package compile

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Counters. Every packet counts something, often in the same cell: were it one cell for all CPUs,
// they would wait for each other there, and adding to it so that nothing is lost takes a CPU some
// twenty cycles even when it is alone. So each CPU has a copy of an array, where that is not too
// much memory, and adds to it as to any memory: no other packet is processed on it meanwhile. What
// a counter says is the sum of its copies. Nobody else writes to those; there is one more copy for
// what the control plane sets, which is then the difference.

// CounterPlan is where a counter array is: of CPUs copies that are Apart bytes apart, and one more
// behind them; or, where CPUs is 0, of one that all CPUs add to.
type CounterPlan struct {
	ArrayPlan
	CPUs, Apart int
}

// Copies are where the copies of a cell are, the control plane's last.
func (c CounterPlan) Copies(index int) (at []int) {
	for i := range c.CPUs + 1 {
		at = append(at, c.At(index)+i*c.Apart)
	}
	return at
}

// mostCopied bounds what all copies of an array take, in bytes.
const mostCopied = 4 << 20

// planCounters makes room for the counter arrays; direct counters are in their entries' slots.
func (p *Plan) planCounters() {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = 0
	}
	for _, c := range p.Prog.Counters {
		a := CounterPlan{ArrayPlan: ArrayPlan{Cell: 16, size: c.Size, Stride: 16}}
		if !c.Direct {
			a.Apart = (a.Cell*a.size + 63) &^ 63
			if a.CPUs = cpus; (cpus+1)*a.Apart > mostCopied {
				a.CPUs = 0
			}
			a.Off = p.allocate((a.CPUs + 1) * a.Apart)
		}
		p.Counters = append(p.Counters, a)
	}
}

// count adds the packet to a counter's cell; one beyond the array counts nothing.
func (t *translator) count(k *bmv2json.Counter, index *bmv2json.Expr) {
	end, a := t.NewLabel("counted"), t.Counters[k.Index]
	if k.Size == 0 {
		return
	}
	if a.CPUs == 0 {
		t.cell(a.ArrayPlan, t.Index(index), end)
		t.addToCounter(asm.R2, 0)
		t.Bind(end)
		return
	}
	t.Call(asm.FnGetSmpProcessorId)
	t.Store(code.PHV, phvCPU, asm.R0, 8)
	t.cell(a.ArrayPlan, t.Index(index), end)
	t.Load(asm.R1, code.PHV, phvCPU, 8)
	t.Emit(asm.JGE.Imm(asm.R1, int32(a.CPUs), end), asm.Mul.Imm(asm.R1, int32(a.Apart)),
		asm.Add.Reg(asm.R2, asm.R1))
	for i := range 2 {
		t.Load(asm.R1, asm.R2, 8*i, 8)
		if i == 0 {
			t.Emit(asm.Add.Imm(asm.R1, 1))
		} else {
			t.Load(asm.R3, code.PHV, phvInLen, 4)
			t.Emit(asm.Add.Reg(asm.R1, asm.R3))
		}
		t.Store(asm.R2, 8*i, asm.R1, 8)
	}
	t.Bind(end)
}

// addToCounter adds the packet to the counter at base+off, to which other CPUs add as well. It uses
// R1.
func (t *translator) addToCounter(base asm.Register, off int) {
	t.Emit(asm.Mov.Imm(asm.R1, 1), code.Atomic(asm.AddAtomic, base, asm.R1, off))
	t.Load(asm.R1, code.PHV, phvInLen, 4)
	t.Emit(code.Atomic(asm.AddAtomic, base, asm.R1, off+8))
}
