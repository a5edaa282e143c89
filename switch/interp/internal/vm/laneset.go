package vm

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// laneSet is a set of lanes.
type laneSet []uint64

func newLaneSet(lanes int) laneSet { return make(laneSet, (lanes+63)/64) }

func (s laneSet) has(lane int) bool { return s[lane>>6]>>(lane&63)&1 != 0 }

func (s laneSet) add(lane int) { s[lane>>6] |= 1 << (lane & 63) }

func (s laneSet) remove(lane int) { s[lane>>6] &^= 1 << (lane & 63) }

func (s laneSet) addRuns(runs []packet.Run) {
	for _, r := range runs {
		for i := r.From; i < r.To; i++ {
			s.add(i)
		}
	}
}

func (s laneSet) addAll(o laneSet) {
	for i, v := range o {
		s[i] |= v
	}
}

func (s laneSet) fill() {
	for i := range s {
		s[i] = ^uint64(0)
	}
}
