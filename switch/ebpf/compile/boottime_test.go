package compile

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// TestProgramsReadBoottime checks that the clock of programs also advances while the machine is
// suspended. Leases and meters use this clock.
func TestProgramsReadBoottime(t *testing.T) {
	prog, err := bmv2json.ReadFile("../../../p4src/compiled/netcraq-128.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	maps := emit.Maps{PHV: 1, State: 2, Ports: 3, PacketIn: 4, PacketOut: 5, Buffer: 6, Tap: 7,
		Resume: 8, Lookups: map[int]int{}}
	plan, err := memory.NewPlan(prog)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []emit.Hook{emit.TC, emit.XDP} {
		insns, _, err := Translate(plan, h, maps, emit.Settings{CPUPort: 510})
		if err != nil {
			t.Fatal(err)
		}
		boot := 0
		for _, in := range insns {
			if !in.IsBuiltinCall() {
				continue
			}
			switch asm.BuiltinFunc(in.Constant) {
			case asm.FnKtimeGetBootNs:
				boot++
			case asm.FnKtimeGetNs, asm.FnKtimeGetCoarseNs, asm.FnJiffies64, asm.FnKtimeGetTaiNs:
				t.Errorf("%v: a program calls %v", h, asm.BuiltinFunc(in.Constant))
			}
		}
		if boot == 0 {
			t.Errorf("%v: the program reads no clock", h)
		}
	}
}
