package sim

import "github.com/netcraq/netcraq/api/wire"

// Registers are empty when the program was loaded just now, and at no other time. A switch that
// runs it already, and has no part in any chain, may hold what an earlier chain's keys and sessions
// have left. That chain's epochs are known (chain.Options.EpochFloor), its keys are not.

// mostGarbage is the highest epoch of an earlier chain.
const mostGarbage = 5

// litter has some switches hold what an earlier chain has left, in some runs.
func (w *world) litter(seed uint64) {
	d := newDice(seed, diceGarbage)
	if !groups[groupGarbage] || !d.chance(0.15) {
		return
	}
	w.epochFloor = mostGarbage
	for _, n := range w.nodes {
		if !d.chance(0.7) {
			continue
		}
		w.cover.add("fault.began with garbage", 1)
		n.loaded = true
		for slot := range maxSlots {
			if !d.chance(0.7) {
				continue
			}
			committed := wire.MakeVersion(uint16(1+d.IntN(mostGarbage)), uint64(1+d.IntN(20)))
			latest := committed
			if d.chance(0.2) {
				latest += wire.Version(1 + d.IntN(2))
			}
			n.write("versions", slot, be(8, uint64(committed)), be(8, uint64(latest)))
			for cell := range dirtyCells + 1 {
				i := slot*(dirtyCells+1) + cell
				n.write("objects.objects_length", i, be(2, 7))
				n.write("objects.objects_store", i, []byte("garbage"), make([]byte, 9))
			}
		}
		for id := 1; id <= controllerSessions; id++ {
			n.write("session_request", id, be(4, uint64(d.Uint32()>>1)))
		}
	}
}

// write sets a cell of a register to some bytes, one after the other.
func (n *node) write(name string, cell int, parts ...[]byte) {
	var value []byte
	for _, p := range parts {
		value = append(value, p...)
	}
	must(n.p.WriteRegister(register(name), cell, value))
}

// be is a number of n bytes.
func be(n int, v uint64) []byte {
	out := make([]byte, n)
	for i := range out {
		out[n-1-i] = byte(v >> (8 * i))
	}
	return out
}
