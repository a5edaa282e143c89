package emit

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// MarkToDrop is mark_to_drop of v1model.
func (t *Emitter) MarkToDrop() {
	t.SetStandardConstant(t.Std.EgressSpec, t.DropPort)
	t.SetStandardConstant(t.Std.McastGroup, 0)
}

// SetStandard stores the register into a standard field, cut to its width, if the program has it.
// It uses R5.
func (t *Emitter) SetStandard(r bmv2json.FieldRef, from asm.Register) {
	t.FieldIf(r, func(p ir.Place) {
		if p.Width == p.Size*8 {
			t.Store(code.PHV, p.Off, from, p.Size)
			return
		}
		t.Emit(asm.Mov.Reg(asm.R5, from))
		t.Mask(asm.R5, ir.Ones(p.Width), len(ir.Registers)-2)
		t.Store(code.PHV, p.Off, asm.R5, p.Size)
	})
}

// SetStandardConstant stores a constant into a standard field, cut to its width, if the program has
// it.
func (t *Emitter) SetStandardConstant(r bmv2json.FieldRef, v uint32) {
	t.FieldIf(r, func(p ir.Place) {
		t.StoreConstant(code.PHV, p.Off,
			int32(uint64(v)&ir.Ones(p.Width)), p.Size)
	})
}

// StoreTimestamp stores the switch's clock, in microseconds, into a field if the program reads it.
func (t *Emitter) StoreTimestamp(r bmv2json.FieldRef) {
	if r.IsZero() || !t.Reads(r) {
		return
	}
	t.Call(asm.FnKtimeGetBootNs)
	t.LoadConstant(asm.R1, uint64(t.Started))
	t.Emit(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000))
	t.SetStandard(r, asm.R0)
}
