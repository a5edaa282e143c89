package memory

import (
	"github.com/cilium/ebpf"
)

// Counters. Every packet counts something, often in the same cell. If all CPUs shared one cell,
// they would wait for each other, and an atomic add takes some twenty cycles even without
// contention. So if memory allows, each CPU has its own copy of an array and uses ordinary adds,
// because a CPU processes only one packet at a time. A counter's value is the sum of its copies.
// Only the CPU writes its copy. When the control plane sets a counter, it stores the difference in
// one more copy.

// CounterPlan is the place of a counter array: CPUs copies, Apart bytes from each other, and one
// more after them. If CPUs is 0, there is one copy, to which all CPUs add.
type CounterPlan struct {
	ArrayPlan
	CPUs, Apart int
}

// Copies are the places of a cell's copies, the control plane's copy last.
func (c CounterPlan) Copies(index int) (at []int) {
	for i := range c.CPUs + 1 {
		at = append(at, c.At(index)+i*c.Apart)
	}
	return at
}

// mostCopied bounds the total size of an array's copies, in bytes.
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
