package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Blocks that rest in the frame. Normally, a value of 1,024 bytes is copied from the frame to the
// PHV, from the PHV to a register, and back to the frame, which still contains the value. Some
// programs only read registers into a block's fields and only write registers from them. There,
// each field stays in the frame until the program reads a register into it. The program writes a
// register straight from the frame. It does not write the fields that still rest in the frame with
// the headers.
//
// A block has a mask in the PHV, with a bit for each field that rests. Such a field is in the frame
// (Plan.BlockAt says where), and its bytes in the PHV have no meaning. The program copies resting
// fields into the PHV (settle) before the frame changes. It does so before copies are made, because
// each copy writes its headers into the same frame. It also does so if the outgoing headers have
// another total length or if the block moves among them.

// clearResting emits code that clears the masks of a packet that has just arrived, so that no field
// rests.
func (t *Headers) clearResting() {
	for _, r := range t.Resting {
		t.StoreConstant(code.PHV, r.Mask, 0, 4)
	}
}

// MarkRead emits code that records that a register was read into a field, if the field may rest in
// the frame.
func (t *Headers) MarkRead(dst ir.Place) {
	if f, ok := t.RestingFields[dst.Off]; ok {
		t.Load(asm.R1, code.PHV, f.Mask, 4)
		t.Emit(asm.And.Imm(asm.R1, f.WholeMask()&^(1<<f.Index)))
		t.Store(code.PHV, f.Mask, asm.R1, 4)
	}
}

// WriteResting emits code that writes a resting field to the register cell at R2 and jumps to done.
// For any other field, control continues after this code.
func (t *Headers) WriteResting(off, size int, done string) {
	f, ok := t.RestingFields[off]
	if !ok {
		return
	}
	here := t.NewLabel("here")
	t.Load(asm.R1, code.PHV, f.Mask, 4)
	t.Emit(asm.And.Imm(asm.R1, 1<<f.Index), asm.JEq.Imm(asm.R1, 0, here),
		asm.Mov.Reg(asm.R3, asm.R2))
	t.loadField(f.Resting, f.Index, size)
	t.Jump(done)
	t.Bind(here)
}

// loadField emits code that loads a resting field from the frame to the address in R3.
func (t *Headers) loadField(r *memory.Resting, index, size int) {
	t.Load(asm.R2, code.PHV, t.BlockAt[r.Header], 4)
	if off := t.Layout.Types[r.Header.Type].Fields[index].Off; off != 0 {
		t.Emit(asm.Add.Imm(asm.R2, int32(off)))
	}
	t.Emit(asm.Mov.Imm(asm.R4, int32(size)))
	t.LoadBytes()
}

// settle emits code that copies the resting fields of a block into the PHV.
func (t *Headers) settle(r *memory.Resting) {
	some, loaded, settled := t.NewLabel("some"), t.NewLabel("loaded"), t.NewLabel("settled")
	base := t.Layout.Base[r.Header.Index]
	load := func(off, index, size int) {
		t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(base+off)))
		t.loadField(r, index, size)
	}
	t.Load(asm.R1, code.PHV, r.Mask, 4)
	t.Emit(asm.JEq.Imm(asm.R1, 0, settled))
	fields := t.Layout.Types[r.Header.Type].Fields
	if len(fields) > 1 {
		t.Emit(asm.JNE.Imm(asm.R1, r.WholeMask(), some))
	}
	load(0, 0, t.Layout.Types[r.Header.Type].Bytes)
	if len(fields) > 1 {
		t.Jump(loaded)
		t.Bind(some)
		for i, f := range fields {
			not := t.NewLabel("not")
			t.Load(asm.R1, code.PHV, r.Mask, 4)
			t.Emit(asm.And.Imm(asm.R1, 1<<i), asm.JEq.Imm(asm.R1, 0, not))
			load(f.Off, i, f.Size)
			t.Bind(not)
		}
		t.Bind(loaded)
	}
	t.StoreConstant(code.PHV, r.Mask, 0, 4)
	t.Bind(settled)
}

// SettleAll emits code that copies the resting fields of all blocks into the PHV.
func (t *Headers) SettleAll() {
	for _, r := range t.Resting {
		t.settle(r)
	}
}

// settleElsewhere emits code that copies a block's resting fields into the PHV, if the block will
// leave from another offset of the frame than the one at which it rests. Entry is the offset from
// which the block will leave.
func (t *Headers) settleElsewhere(h *bmv2json.Header) {
	r := t.RestsIn(h)
	if r == nil {
		return
	}
	there := t.NewLabel("there")
	t.Load(asm.R1, code.PHV, t.BlockAt[h], 4)
	t.Emit(asm.JEq.Reg(asm.R1, code.Entry, there))
	t.settle(r)
	t.Bind(there)
}

// ifResting emits code that jumps to rests if all fields of a block rest in the frame. If only some
// fields rest, the code copies them into the PHV. The block's offset in the frame must not change.
func (t *Headers) ifResting(h *bmv2json.Header, rests string) {
	r := t.RestsIn(h)
	if r == nil {
		return
	}
	t.Load(asm.R1, code.PHV, r.Mask, 4)
	t.Emit(asm.JEq.Imm(asm.R1, r.WholeMask(), rests))
	if len(h.Type.Fields) > 1 {
		t.settle(r)
	}
}

// ReloadBlock emits code that restores a block's fields from the frame, as they were when the block
// was extracted. If the block is invalid, its fields become 0.
func (t *Headers) ReloadBlock(h *bmv2json.Header, drop string) {
	absent := t.NewLabel("absent")
	// All fields rest in the frame again, as when the block was extracted.
	if r := t.RestsIn(h); r != nil {
		t.StoreConstant(code.PHV, r.Mask, r.WholeMask(), 4)
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JNE.Imm(asm.R1, 0, absent))
		t.StoreConstant(code.PHV, r.Mask, 0, 4)
		t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
		t.Bind(absent)
		return
	}
	t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
	t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
	t.Emit(asm.JEq.Imm(asm.R1, 0, absent))
	t.Load(asm.R2, code.PHV, t.BlockAt[h], 4)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.Layout.Base[h.Index])),
		asm.Mov.Imm(asm.R4, int32(t.Layout.Types[h.Type].Bytes)))
	t.LoadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(absent)
}
