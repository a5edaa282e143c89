package externs

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
)

// EmitRandom emits random(dst, lo, hi). An empty range leaves dst unchanged.
func (t *Externs) EmitRandom(p *bmv2json.Primitive) {
	empty, all := t.NewLabel("empty"), t.NewLabel("all")
	lo, hi := t.Index(p.Args[1]), t.Index(p.Args[2])
	t.Random64()
	t.Store(asm.R10, emit.NumberOnStack, asm.R0, 8)
	t.Compute(hi, 0)
	t.Store(asm.R10, emit.NumberOnStack-8, asm.R1, 8)
	t.Compute(lo, 0)
	t.Load(asm.R2, asm.R10, emit.NumberOnStack-8, 8)
	t.Load(asm.R0, asm.R10, emit.NumberOnStack, 8)
	t.Emit(asm.JGT.Reg(asm.R1, asm.R2, empty), asm.Sub.Reg(asm.R2, asm.R1), asm.Add.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R2, 0, all), asm.Mod.Reg(asm.R0, asm.R2))
	t.Bind(all)
	t.Emit(asm.Add.Reg(asm.R1, asm.R0))
	t.StoreNumber(p.Args[0])
	t.Bind(empty)
}
