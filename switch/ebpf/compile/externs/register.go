package externs

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// ReadRegister emits code that reads a register cell into dst. An index beyond the array leaves dst
// unchanged.
func (t *Externs) ReadRegister(dst ir.Place, r *bmv2json.Register, index *bmv2json.Expr) {
	end, a := t.NewLabel("read"), t.Registers[r.Index]
	if r.Size == 0 {
		return
	}
	t.CellAddress(a, t.Index(index), end)
	switch {
	case !ir.Wide(r.Width) && !ir.Wide(dst.Width):
		t.Load(asm.R3, asm.R2, 0, a.Cell)
		switch {
		case r.Signed && r.Width < dst.Width && r.Width < 64:
			s := int32(64 - r.Width)
			t.Emit(asm.LSh.Imm(asm.R3, s), asm.ArSh.Imm(asm.R3, s))
			t.Mask(asm.R3, ir.Ones(dst.Width), 2)
		case r.Width > dst.Width:
			t.Mask(asm.R3, ir.Ones(dst.Width), 2)
		}
		t.Store(code.PHV, dst.Off, asm.R3, dst.Size)
	case r.Width == dst.Width:
		t.CopyWords(code.PHV, dst.Off, asm.R2, 0, a.Cell)
		t.headers.MarkRead(dst)
	default:
		ir.Refuse(t.Where, "reading a register of %d bits into a field of %d", r.Width, dst.Width)
	}
	t.Bind(end)
}

// WriteRegister emits code that writes a value, truncated to the cell's width, to a register cell.
// An index beyond the array writes nothing.
func (t *Externs) WriteRegister(r *bmv2json.Register, index, src *bmv2json.Expr) {
	end, a := t.NewLabel("written"), t.Registers[r.Index]
	if r.Size == 0 {
		return
	}
	if ir.Wide(r.Width) {
		if src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == r.Width &&
			!src.Field.Field.VL {
			t.CellAddress(a, t.Index(index), end)
			off := t.Layout.Field(src.Field).Off
			t.headers.WriteResting(off, a.Cell, end)
			t.CopyWords(asm.R2, 0, code.PHV, off, a.Cell)
			t.Bind(end)
			return
		}
		t.CellAddress(a, t.Index(index), end)
		n := ir.WordsOf(r.Width)
		// R0 is the last register that computing a value may use
		t.Emit(asm.Mov.Reg(asm.R0, asm.R2))
		for i := range n {
			v := ir.And(t.Word(src, i), ir.Const(ir.Ones(min(64, r.Width-64*i))))
			if v.RegistersNeeded() >= len(ir.Registers) {
				ir.Refuse(t.Where, "an expression with too many intermediate values")
			}
			t.ComputeSwapped(v, 0)
			t.Store(asm.R0, (n-1-i)*8, asm.R1, 8)
		}
		t.Bind(end)
		return
	}
	v := ir.And(t.Word(src, 0), ir.Const(ir.Ones(r.Width)))
	t.CellAddress(a, t.Index(index), end)
	if imm, ok := v.Immediate(); ok {
		t.StoreConstant(asm.R2, 0, imm, a.Cell)
	} else {
		if v.RegistersNeeded()+2 > len(ir.Registers) {
			ir.Refuse(t.Where, "an expression with too many intermediate values")
		}
		t.Store(asm.R2, 0, t.Compute(v, 2), a.Cell)
	}
	t.Bind(end)
}
