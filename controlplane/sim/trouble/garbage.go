package trouble

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file fills registers with leftovers. Registers are surely empty only right after the program
// was loaded. A switch that already runs the program, and has no part in any chain, may hold
// leftovers of an earlier chain's keys and sessions. The controller knows that chain's epochs
// (chain.Options.EpochFloor), but not its keys.

// mostGarbage is the highest epoch of an earlier chain.
const mostGarbage = 5

// In some runs, Litter fills the registers of some switches with leftovers of an earlier chain.
func Litter(w *world.World, seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceGarbage)
	if !clockwork.Included[clockwork.GroupGarbage] || !d.Chance(0.15) {
		return
	}
	w.EpochFloor = mostGarbage
	for _, n := range w.Nodes {
		if !d.Chance(0.7) {
			continue
		}
		w.Cover.Count("fault.began with garbage", 1)
		n.Loaded = true
		for slot := range world.MaxSlots {
			if !d.Chance(0.7) {
				continue
			}
			committed := wire.MakeVersion(uint16(1+d.IntN(mostGarbage)), uint64(1+d.IntN(20)))
			latest := committed
			if d.Chance(0.2) {
				latest += wire.Version(1 + d.IntN(2))
			}
			write(n, "versions", slot, be(8, uint64(committed)), be(8, uint64(latest)))
			for cell := range world.DirtyCells + 1 {
				i := slot*(world.DirtyCells+1) + cell
				write(n, "objects.objects_length", i, be(2, 7))
				write(n, "objects.objects_store", i, []byte("garbage"), make([]byte, 9))
			}
		}
		for id := 1; id <= world.ControllerSessions; id++ {
			write(n, "session_request", id, be(4, uint64(d.Uint32()>>1)))
		}
	}
}

// write sets a cell of a register to the concatenation of parts.
func write(n *world.Node, name string, cell int, parts ...[]byte) {
	var value []byte
	for _, p := range parts {
		value = append(value, p...)
	}
	world.Must(n.Pipeline.WriteRegister(world.Register(name), cell, value))
}

// be encodes a number as n bytes, big-endian.
func be(n int, v uint64) []byte {
	out := make([]byte, n)
	for i := range out {
		out[n-1-i] = byte(v >> (8 * i))
	}
	return out
}
