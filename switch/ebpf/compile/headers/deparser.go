package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Deparse emits the deparser. It writes the valid headers, in the deparser's order, over the
// frame's old headers. If their total length changes, the payload moves.
func (t *Headers) Deparse(drop string) {
	if len(t.Prog.Deparsers) == 0 {
		return
	}
	d := t.Prog.Deparsers[0]
	if len(d.Primitives) > 0 {
		ir.Refuse(d.Primitives[0].Path, "a primitive in a deparser")
	}
	t.Where = d.Path
	// This computes the total length of the new headers.
	t.Emit(asm.Mov.Imm(code.Entry, 0))
	most := 0
	for _, h := range d.Order {
		skip := t.NewLabel("skip")
		most += t.Layout.Types[h.Type].Bytes + t.Layout.Types[h.Type].VarbitMax
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, skip))
		t.settleElsewhere(h)
		t.Emit(asm.Add.Imm(code.Entry, int32(t.Layout.Types[h.Type].Bytes)))
		if h.Type.VL >= 0 {
			t.LoadVarbitLength(asm.R1, h, drop)
			t.Emit(asm.Add.Reg(code.Entry, asm.R1))
		}
		t.Bind(skip)
		if manyLengths(d) {
			t.WidenBounds(code.Entry, most, drop)
		}
	}
	same := t.NewLabel("same")
	t.Load(asm.R1, code.PHV, memory.PHVHead, 4)
	t.Emit(asm.JEq.Reg(code.Entry, asm.R1, same))
	if len(t.Resting) > 0 {
		t.SettleAll()
		t.Load(asm.R1, code.PHV, memory.PHVHead, 4)
	}
	t.resize(drop)
	t.Bind(same)

	done := t.NewLabel("deparsed")
	if !analysis.HasVarbit(d) {
		t.deparseDirectly(d, done)
	}
	t.deparseByCopy(d, drop)
	t.Bind(done)
}

// manyHeaders is the number of headers, or of parser states, from which on the bounds of lengths
// are widened. Otherwise the verifier would follow the total length of each combination of headers.
// Widening costs each packet a store and a load per header.
const manyHeaders = 8

// manyLengths reports whether a deparser's headers may have too many different total lengths for
// the verifier.
func manyLengths(d *bmv2json.Deparser) bool {
	return analysis.HasVarbit(d) || len(d.Order) > manyHeaders
}

// deparseByCopy emits code that writes the headers even outside the frame's linear part. It
// assembles small headers in Plan.Out and writes them at once. It writes blocks directly from their
// position in the PHV.
func (t *Headers) deparseByCopy(d *bmv2json.Deparser, drop string) {
	// Entry is the offset in the frame at which the next flush writes. Temp is the number of bytes
	// in Plan.Out.
	t.Emit(asm.Mov.Imm(code.Entry, 0), asm.Mov.Imm(code.Temp, 0))
	room := 0
	for _, h := range d.Order {
		skip := t.NewLabel("skip")
		size := t.Layout.Types[h.Type].Bytes
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, skip))
		if t.Blocks[h] {
			t.flush(room, drop)
			rests := t.NewLabel("rests")
			t.ifResting(h, rests)
			t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Mov.Reg(asm.R3, code.PHV),
				asm.Add.Imm(asm.R3, int32(t.Layout.Base[h.Index])),
				asm.Mov.Imm(asm.R4, int32(size)))
			t.StoreBytes()
			t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
			t.Bind(rests)
			t.Emit(asm.Add.Imm(code.Entry, int32(size)))
		} else {
			// The condition is never true, but the verifier needs it.
			t.Emit(asm.JGT.Imm(code.Temp, int32(room), drop))
			t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Reg(asm.R3, code.Temp))
			if h.Type.VL >= 0 {
				t.putVarbit(h, drop)
				room += t.Layout.Types[h.Type].VarbitMax
			} else {
				t.writeFields(h.Type, t.Layout.Base[h.Index], t.Out, false)
			}
			t.Emit(asm.Add.Imm(code.Temp, int32(size)))
			room += size
		}
		t.Bind(skip)
		if manyLengths(d) {
			t.WidenBounds(code.Temp, room, drop)
		}
	}
	t.flush(room, drop)
}

// flush emits code that writes the content of Plan.Out to the frame.
func (t *Headers) flush(room int, drop string) {
	if room == 0 {
		return
	}
	empty := t.NewLabel("empty")
	t.Emit(asm.JEq.Imm(code.Temp, 0, empty), asm.JGT.Imm(code.Temp, int32(room), drop))
	t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Mov.Reg(asm.R3, code.PHV),
		asm.Add.Imm(asm.R3, int32(t.Out)), asm.Mov.Reg(asm.R4, code.Temp))
	t.StoreBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop), asm.Add.Reg(code.Entry, code.Temp),
		asm.Mov.Imm(code.Temp, 0))
	t.Bind(empty)
}

// writeFields emits code that writes a header to R3+out. It first combines fields that do not fill
// whole bytes in a word. If exact is set, the code must not write any byte after the header.
func (t *Headers) writeFields(h *bmv2json.HeaderType, base, out int, exact bool) {
	t.writeFieldRange(h, 0, len(h.Fields), base, out, exact)
}

// writeFieldRange emits code that writes the fields [first, last), which start and end on a byte.
// It writes them to their offsets in a header without a field of variable length before them.
func (t *Headers) writeFieldRange(h *bmv2json.HeaderType, first, last, base, out int,
	exact bool) {
	if first == last {
		return
	}
	l := t.Layout.Types[h]
	// piece is a chunk of whole bytes, at most 64 bits: the bits [from, from+bits) of the header.
	type piece struct {
		v     *ir.Value
		width int
	}
	var run []piece
	from, filled := h.Fields[first].Offset, 0
	put := func() {
		if filled == 0 {
			return
		}
		var v *ir.Value
		at := filled
		for _, p := range run {
			at -= p.width
			x := ir.Shl(p.v, uint64(at))
			if v == nil {
				v = x
			} else {
				v = ir.Or(v, x)
			}
		}
		t.putBytes(v, out+from/8, filled/8, exact)
		from, filled, run = from+filled, 0, nil
	}
	add := func(v *ir.Value, width int) { // appends the low width bits of v
		for width > 0 {
			n := min(width, 64-filled)
			run = append(run, piece{ir.And(ir.Shr(v, uint64(width-n)), ir.Const(ir.Ones(n))), n})
			filled += n
			width -= n
			if filled == 64 || width == 0 && filled%8 == 0 {
				put()
			}
		}
	}
	for i, f := range h.Fields[:last] {
		if i < first {
			continue
		}
		p := ir.Place{Off: base + l.Fields[i].Off, Size: l.Fields[i].Size, Width: f.Width}
		n := ir.WordsOf(f.Width)
		for w := n - 1; w >= 0; w-- {
			width := 64
			if w == n-1 {
				width = f.Width - 64*(n-1)
			}
			// A full word needs no shift or mask.
			if filled == 0 && width == 64 && ir.Wide(f.Width) {
				t.Load(asm.R1, code.PHV, p.Off+(n-1-w)*8, 8)
				t.Store(asm.R3, out+from/8, asm.R1, 8)
				from += 64
				continue
			}
			add(t.WordOfPlace(p, w), width)
		}
	}
	if filled > 0 {
		ir.Refuse(h.Path, "a header of %d bits, which is not whole bytes", h.FixedBits)
	}
}

// putBytes emits code that writes the low size bytes of v, big-endian, to R3+off. Unless exact is
// set, it may write up to 8 bytes. The bytes after v are written later or are unused.
func (t *Headers) putBytes(v *ir.Value, off, size int, exact bool) {
	wide := size
	switch {
	case size == 3:
		wide = 4
	case size > 4:
		wide = 8
	}
	v = ir.Shl(v, uint64(8*(wide-size)))
	if k, ok := v.Constant(); ok {
		t.ComputeSwapped(ir.Const(k<<(64-8*wide)), 0)
		t.putRegister(off, size, wide, exact)
		return
	}
	// R3 is in use, so the code may compute only with the registers after R3.
	if v.RegistersNeeded() > 2 {
		t.Emit(asm.Mov.Reg(asm.R0, asm.R3))
		t.Compute(v, 0)
		t.Emit(asm.Mov.Reg(asm.R3, asm.R0))
	} else {
		t.Compute(v, 0)
	}
	if wide > 1 {
		t.Emit(asm.HostTo(asm.BE, asm.R1, code.SizeOf(wide)))
	}
	t.putRegister(off, size, wide, exact)
}

// putRegister emits code that writes the first size bytes of R1, in memory order, to R3+off. It
// writes `wide` bytes at once or, if exact is set, only size bytes in several pieces.
func (t *Headers) putRegister(off, size, wide int, exact bool) {
	if !exact || size == wide {
		t.Store(asm.R3, off, asm.R1, wide)
		return
	}
	for size > 0 {
		n := 4
		for n > size {
			n /= 2
		}
		t.Store(asm.R3, off, asm.R1, n)
		if size -= n; size > 0 {
			t.Emit(asm.RSh.Imm(asm.R1, int32(8*n)))
			off += n
		}
	}
}

// resize emits code that makes the frame's headers Entry bytes long instead of PHVHead (R1). It
// uses all registers but Entry, PHV and Ctx.
func (t *Headers) resize(drop string) {
	shrink, done := t.NewLabel("shrink"), t.NewLabel("resized")
	if t.Hook == emit.XDP {
		t.delivery.ResizeAtXDP(drop)
	} else {
		t.Emit(asm.JGT.Reg(asm.R1, code.Entry, shrink))
		t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Sub.Reg(asm.R2, asm.R1),
			asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnSkbChangeHead)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Jump(done)
		// At tc, no helper removes bytes from the front of a frame for every protocol. So the
		// payload moves forward, and the frame is cut at its end.
		t.Bind(shrink)
		t.StoreConstant(asm.R10, -4, 0, 4)
		t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4))
		t.Call(asm.FnMapLookupElem)
		t.Emit(asm.JEq.Imm(asm.R0, 0, drop))
		t.Store(asm.R10, -16, asm.R0, 8)
		cut := t.NewLabel("cut")
		t.Load(asm.R2, code.PHV, memory.PHVHead, 4)
		t.Load(code.Temp, code.PHV, memory.PHVLen, 4)
		t.Emit(asm.Sub.Reg(code.Temp, asm.R2), asm.JEq.Imm(code.Temp, 0, cut),
			asm.JGT.Imm(code.Temp, memory.BufferSize, drop))
		t.Emit(asm.Mov.Reg(asm.R3, asm.R0), asm.Mov.Reg(asm.R4, code.Temp))
		t.LoadBytes()
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop), asm.Mov.Reg(asm.R2, code.Entry),
			asm.Mov.Reg(asm.R4, code.Temp))
		t.Load(asm.R3, asm.R10, -16, 8)
		t.StoreBytes()
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Bind(cut)
		t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Add.Reg(asm.R2, code.Temp))
		t.delivery.CutTail(drop)
		t.Bind(done)
	}
	t.Load(asm.R1, code.PHV, memory.PHVHead, 4)
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.Sub.Reg(asm.R2, asm.R1), asm.Add.Reg(asm.R2, code.Entry))
	t.Store(code.PHV, memory.PHVLen, asm.R2, 4)
	t.Store(code.PHV, memory.PHVHead, code.Entry, 4)
}
