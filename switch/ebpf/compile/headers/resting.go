package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Blocks that rest in the frame. Normally, a value of 1,024 bytes is copied from the frame to the
// PHV, from there to a register, and back to the frame, which still contains it. If a program only
// reads registers into a block's fields and writes registers with them, each field stays in the
// frame until a register is read into it. A register is written straight from the frame, and fields
// that still rest there are not written with the headers.
//
// A block has a mask in the PHV, with a bit for each field that rests. Such a field is in the frame
// (Plan.BlockAt says where), and its place in the PHV has no meaningful content. Resting fields are
// copied into the PHV (settle) before the frame changes: before copies are made, because each copy
// writes its headers into the same frame, and if the outgoing headers differ in total length or the
// block moves among them.

// clearResting clears the masks of a packet that has just arrived.
func (t *Headers) clearResting() {
	for _, r := range t.Resting {
		t.StoreConstant(code.PHV, r.Mask, 0, 4)
	}
}

// MarkRead records that a field has been read into the PHV, if it is one that may rest.
func (t *Headers) MarkRead(dst ir.Place) {
	if f, ok := t.RestingFields[dst.Off]; ok {
		t.Load(asm.R1, code.PHV, f.Mask, 4)
		t.Emit(asm.And.Imm(asm.R1, f.WholeMask()&^(1<<f.Index)))
		t.Store(code.PHV, f.Mask, asm.R1, 4)
	}
}

// WriteResting writes the cell at R2 with the value of a resting field and goes to done; for any
// other field, control continues.
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

// loadField loads a field that rests to where R3 points.
func (t *Headers) loadField(r *memory.Resting, index, size int) {
	t.Load(asm.R2, code.PHV, t.BlockAt[r.Header], 4)
	if off := t.Layout.Types[r.Header.Type].Fields[index].Off; off != 0 {
		t.Emit(asm.Add.Imm(asm.R2, int32(off)))
	}
	t.Emit(asm.Mov.Imm(asm.R4, int32(size)))
	t.LoadBytes()
}

// settle copies the resting fields of a block into the PHV.
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

// SettleAll settles all blocks.
func (t *Headers) SettleAll() {
	for _, r := range t.Resting {
		t.settle(r)
	}
}

// settleElsewhere settles a block that will leave from a different place in the frame than the one
// in which it rests. Entry is the place from which it leaves.
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

// ifResting goes to rests if all of a block rests and the block leaves from its present place. It
// settles a block that rests only partly.
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

// ReloadBlock restores a block's fields from the frame, as when the block was extracted, or sets
// them to 0 if the block is not valid.
func (t *Headers) ReloadBlock(h *bmv2json.Header, drop string) {
	absent := t.NewLabel("absent")
	if r := t.RestsIn(h); r != nil { // all fields rest again, as when the block was extracted
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
