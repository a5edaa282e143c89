package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
)

// Direct access to the frame. A helper that copies bytes from or to a frame (bpf_skb_load_bytes,
// bpf_skb_store_bytes) has much to do. It must find the bytes, check whether they are shared, and
// copy a number of bytes that is known only at run time. Headers are nearly always in the frame's
// linear part. A program may read and write this part itself, after it has compared its pointer
// with the part's end. The verifier checks that. At tc the program first makes the frame's head its
// own (unshared), when it starts and after each clone.
//
// One comparison covers all headers. The further comparisons before each header are for the
// verifier, which forgets bounds where paths meet.

// frameBounds emits code that loads the addresses of the start and the end of the frame's linear
// part.
func (t *Headers) frameBounds(data, end asm.Register) {
	at := emit.SKBData
	if t.Hook == emit.XDP {
		at = emit.XDPData
	}
	t.Load(data, code.Ctx, at, 4)
	t.Load(end, code.Ctx, at+4, 4)
}

// loadChunk is how many bytes of the frame are copied at a time. loadMost is the largest number of
// bytes copied in this way. For more bytes, a helper call costs less.
const (
	loadChunk = 16
	loadMost  = 512
)

// LoadDirectly emits code that copies the first Temp bytes of the frame to Plan.Frame and jumps to
// done. Control continues after this code if the linear part does not have all these bytes, or if
// they are less than a chunk. The last bytes are copied as a whole chunk that ends with them, so a
// part of it may be copied twice.
func (t *Headers) LoadDirectly(done string) {
	if t.FrameMax > loadMost {
		return
	}
	otherwise, tail := t.NewLabel("otherwise"), t.NewLabel("tail")
	t.frameBounds(asm.R2, asm.R3)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R3), asm.Sub.Reg(asm.R1, asm.R2),
		asm.JGT.Reg(code.Temp, asm.R1, otherwise), asm.JLT.Imm(code.Temp, loadChunk, otherwise))
	for at := 0; at+loadChunk <= t.FrameMax; at += loadChunk {
		t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Imm(asm.R1, int32(at+loadChunk)),
			asm.JGT.Reg(asm.R1, asm.R3, tail))
		t.CopyWords(code.PHV, t.Frame+at, asm.R2, at, loadChunk)
	}
	t.Bind(tail)
	t.Emit(asm.Mov.Reg(asm.R0, code.Temp), asm.Sub.Imm(asm.R0, loadChunk),
		asm.Add.Reg(asm.R2, asm.R0), asm.Add.Reg(asm.R0, code.PHV))
	t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Imm(asm.R1, loadChunk),
		asm.JGT.Reg(asm.R1, asm.R3, otherwise))
	t.CopyWords(asm.R0, t.Frame, asm.R2, 0, loadChunk)
	t.Jump(done)
	t.Bind(otherwise)
}

// deparseDirectly emits code that writes the headers, Entry bytes in total, into the frame's linear
// part, and jumps to done. If the headers do not fit into that part, control continues after this
// code. The code there writes all bytes again.
func (t *Headers) deparseDirectly(d *bmv2json.Deparser, done string) {
	otherwise := t.NewLabel("otherwise")
	t.frameBounds(asm.R1, asm.R2)
	t.Emit(asm.Sub.Reg(asm.R2, asm.R1), asm.JGT.Reg(code.Entry, asm.R2, otherwise))
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	room := 0
	for _, h := range d.Order {
		skip := t.NewLabel("skip")
		size := t.Layout.Types[h.Type].Bytes
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, skip))
		if t.Blocks[h] { // The block is so long that a call costs less than copying words.
			rests := t.NewLabel("rests")
			t.ifResting(h, rests)
			t.Emit(asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Reg(asm.R3, code.PHV),
				asm.Add.Imm(asm.R3, int32(t.Layout.Base[h.Index])),
				asm.Mov.Imm(asm.R4, int32(size)))
			t.StoreBytes()
			t.Emit(asm.JNE.Imm(asm.R0, 0, otherwise))
			t.Bind(rests)
		} else {
			t.Emit(asm.JGT.Imm(code.Temp, int32(room), otherwise))
			t.frameBounds(asm.R3, asm.R2)
			t.Emit(asm.Add.Reg(asm.R3, code.Temp), asm.Mov.Reg(asm.R1, asm.R3),
				asm.Add.Imm(asm.R1, int32(size)), asm.JGT.Reg(asm.R1, asm.R2, otherwise))
			t.writeFields(h.Type, t.Layout.Base[h.Index], 0, true)
		}
		t.Emit(asm.Add.Imm(code.Temp, int32(size)))
		room += size
		t.Bind(skip)
		if manyLengths(d) {
			t.WidenBounds(code.Temp, room, otherwise)
		}
	}
	t.Jump(done)
	t.Bind(otherwise)
}
