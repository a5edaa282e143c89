package chain

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// A network may have a thousand switches and a chain three members. Most inputs concern one switch,
// and come many times a second, so none of them may look at every switch. The machine looks at the
// near switches: those that have, had or will have a part in the chain, and those that need
// something from it. Of the others it only sends probes, in the order in which they are due.

// attend makes the machine look at a switch in its next step, because the switch may lack its part.
func (m *Machine) attend(sw string) { m.attended[sw] = true }

// attendAll makes the machine look at all switches in its next step, because their parts have
// changed.
func (m *Machine) attendAll() {
	for _, s := range m.o.Switches {
		m.attended[s] = true
	}
}

// attendedTo forgets those switches that need nothing before the next input that concerns them.
func (m *Machine) attendedTo() {
	if !m.decided { // there are no parts yet
		return
	}
	for s := range m.attended {
		v := m.view[s]
		if v == nil || !v.up || v.installs != 0 || m.has(s) && !v.failed {
			delete(m.attended, s)
		}
	}
}

// near returns the near switches and some others, in the order of Options.Switches.
func (m *Machine) near(others ...string) []string {
	out := slices.Concat(m.cfg.Learners(), others)
	if m.persisting != nil {
		out = append(out, m.persisting.config.Learners()...)
	}
	if j, _ := m.joiner(); j != "" {
		out = append(out, j)
	}
	for _, set := range []map[string]bool{m.fence, m.tested, m.attended} {
		out = slices.AppendSeq(out, maps.Keys(set))
	}
	return m.inOrder(out)
}

// inOrder returns those switches that the machine knows, each once, in the order of
// Options.Switches.
func (m *Machine) inOrder(switches []string) []string {
	switches = slices.DeleteFunc(switches, func(s string) bool { return m.view[s] == nil })
	slices.SortFunc(switches, func(a, b string) int { return cmp.Compare(m.view[a].place, m.view[b].place) })
	return slices.Compact(switches)
}

// probeLater notes when a switch may have to be probed, in place of what was noted for it before.
func (m *Machine) probeLater(sw string, at Time) {
	m.view[sw].probeDue = at
	heap.Push(&m.probesDue, probe{at, sw})
}

// nextProbe returns the earliest probe; false if there is none.
func (m *Machine) nextProbe() (probe, bool) {
	for len(m.probesDue) > 0 {
		p := m.probesDue[0]
		if v := m.view[p.sw]; v != nil && v.up && v.probeDue == p.at {
			return p, true
		}
		heap.Pop(&m.probesDue) // another one counts, or the switch has gone
	}
	return probe{}, false
}

// dueProbes returns the switches that may have to be probed now, and notes them for the next time.
func (m *Machine) dueProbes(now Time) (out []string) {
	for {
		p, ok := m.nextProbe()
		if !ok || p.at > now {
			return out
		}
		heap.Pop(&m.probesDue)
		m.probeLater(p.sw, now+m.o.ProbeEvery)
		out = append(out, p.sw)
	}
}

// probe is when a switch may have to be probed.
type probe struct {
	at Time
	sw string
}

// probeQueue is a heap.Interface of probes, the earliest first. A switch may be in it more than
// once. Only the probe at its view's probeDue counts.
type probeQueue []probe

func (q probeQueue) Len() int           { return len(q) }
func (q probeQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q probeQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *probeQueue) Push(x any) { *q = append(*q, x.(probe)) }

// Pop implements heap.Interface.
func (q *probeQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
