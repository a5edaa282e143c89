package memory

import (
	"github.com/cilium/ebpf"
)

// Counters. Every packet counts something, often in the same cell. If all CPUs shared one cell,
// they would wait for each other, and an atomic add takes some twenty cycles even without
// contention. So if memory allows, each CPU has its own copy of an array and uses ordinary adds,
// because a CPU processes only one packet at a time. A counter's value is the sum of its copies.
// Only one CPU writes each copy. When the control plane sets a counter, it stores the difference in
// an additional copy.

// CounterPlan describes where the state holds a counter array. There are CPUs copies, Apart bytes
// from each other, and the control plane's copy after them. If CPUs is 0, there is one copy, to
// which all CPUs add.
type CounterPlan struct {
	ArrayPlan
	CPUs, Apart int
}

// Copies returns the offsets of a cell's copies. The control plane's copy is the last.
func (c CounterPlan) Copies(index int) (at []int) {
	for i := range c.CPUs + 1 {
		at = append(at, c.At(index)+i*c.Apart)
	}
	return at
}

// mostCopied bounds the total size of all copies of a counter array, in bytes.
const mostCopied = 4 << 20

// planCounters reserves space for the counter arrays. Direct counters are in the slots of table
// entries.
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
