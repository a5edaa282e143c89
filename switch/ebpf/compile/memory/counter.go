package memory

import (
	"github.com/cilium/ebpf"
)

// Counters. Every packet counts something, often in the same cell: were it one cell for all CPUs,
// they would wait for each other there, and adding to it so that nothing is lost takes a CPU some
// twenty cycles even when it is alone. So each CPU has a copy of an array, where that is not too
// much memory, and adds to it as to any memory: no other packet is processed on it meanwhile. What
// a counter says is the sum of its copies. Nobody else writes to those; there is one more copy for
// what the control plane sets, which is then the difference.

// CounterPlan is the place of a counter array: CPUs copies that are Apart bytes apart, and one more
// after them; or, if CPUs is 0, one that all CPUs add to.
type CounterPlan struct {
	ArrayPlan
	CPUs, Apart int
}

// Copies are the places of a cell's copies, the control plane's last.
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
		a := CounterPlan{ArrayPlan: ArrayPlan{Cell: 16, Size: c.Size, Stride: 16}}
		if !c.Direct {
			a.Apart = (a.Cell*a.Size + 63) &^ 63
			if a.CPUs = cpus; (cpus+1)*a.Apart > mostCopied {
				a.CPUs = 0
			}
			a.Off = p.allocate((a.CPUs + 1) * a.Apart)
		}
		p.Counters = append(p.Counters, a)
	}
}
