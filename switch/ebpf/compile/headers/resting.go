package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Blocks that rest in the frame. A value of 1,024 bytes would be copied from the frame to the PHV,
// from there to a register, and back to the frame, where it stands already. If a program only reads
// registers into a block's fields and writes registers with them, each field stays in the frame
// until something is read into it: a register is written straight from the frame, and fields that
// still rest there are not written with the headers.
//
// A block has a mask in the PHV, with a bit for each of its fields that rests: it is in the frame
// (Plan.BlockAt says where), and what the PHV has in its place is nothing. What rests is taken into
// the PHV (settle) before the frame changes under it: before copies are made, each of which writes
// its headers into the same frame, and where the headers that leave are longer or shorter in all,
// or the block has another place among them.

// clearResting says that nothing rests: of a packet that has just come in.
func (t *Headers) clearResting() {
	for _, r := range t.Resting {
		t.StoreConstant(code.PHV, r.Mask, 0, 4)
	}
}

// MarkRead says that a field has been read into the PHV, if it is one that may rest.
func (t *Headers) MarkRead(dst ir.Place) {
	if f, ok := t.RestingFields[dst.Off]; ok {
		t.Load(asm.R1, code.PHV, f.Mask, 4)
		t.Emit(asm.And.Imm(asm.R1, f.WholeMask()&^(1<<f.Index)))
		t.Store(code.PHV, f.Mask, asm.R1, 4)
	}
}

// WriteResting writes the cell at R2 with a field that rests and goes to done; with any other it
// continues.
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

// settle takes what rests of a block into the PHV.
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

// SettleAll does it for all blocks.
func (t *Headers) SettleAll() {
	for _, r := range t.Resting {
		t.settle(r)
	}
}

// settleElsewhere takes a block into the PHV that is to leave from another place than it rests at:
// Entry is where it leaves.
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

// ifResting goes to rests if a block that leaves from its present place rests as a whole. Partly
// resting blocks are completed.
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

// ReloadBlock makes a block's fields those of the frame again, as when it was extracted, or 0 if it
// is not valid.
func (t *Headers) ReloadBlock(h *bmv2json.Header, drop string) {
	absent := t.NewLabel("absent")
	if r := t.RestsIn(h); r != nil { // again, as when it was extracted
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
