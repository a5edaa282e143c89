package emit

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// MarkToDrop emits v1model's mark_to_drop.
func (t *Emitter) MarkToDrop() {
	t.SetStandardConstant(t.Std.EgressSpec, t.DropPort)
	t.SetStandardConstant(t.Std.McastGroup, 0)
}

// SetStandard emits code that stores a register into a field of the standard metadata, truncated to
// the field's width. If the program does not have the field, it emits nothing. The code uses R5.
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

// SetStandardConstant emits code that stores a constant into a field of the standard metadata,
// truncated to the field's width. If the program does not have the field, it emits nothing.
func (t *Emitter) SetStandardConstant(r bmv2json.FieldRef, v uint32) {
	t.FieldIf(r, func(p ir.Place) {
		t.StoreConstant(code.PHV, p.Off,
			int32(uint64(v)&ir.Ones(p.Width)), p.Size)
	})
}

// StoreTimestamp emits code that stores the switch's clock, in microseconds, into a field, if the
// program reads the field.
func (t *Emitter) StoreTimestamp(r bmv2json.FieldRef) {
	if r.IsZero() || !t.Reads(r) {
		return
	}
	t.Call(asm.FnKtimeGetBootNs)
	t.LoadConstant(asm.R1, uint64(t.Started))
	t.Emit(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000))
	t.SetStandard(r, asm.R0)
}
