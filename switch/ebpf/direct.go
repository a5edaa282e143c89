package ebpf

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Direct access to the frame. A helper that copies bytes from or to a frame (bpf_skb_load_bytes, bpf_skb_store_bytes) finds out where they are and whether
// they are shared, and copies a number of bytes that it does not know beforehand. Where they are in the frame's linear part, as headers nearly always are, a program
// may read and write them itself, after comparing its pointer with the part's end; the verifier sees to that. At tc the kernel makes the frame's head this program's own
// beforehand: when the program starts, and after each clone.
//
// The comparison is made once for all headers; those before each header are for the verifier, which forgets where paths have met.

// frameBounds loads where the frame's linear part begins and ends.
func (t *translator) frameBounds(data, end asm.Register) {
	at := skbData
	if t.hook == hookXDP {
		at = xdpData
	}
	t.load(data, rCtx, at, 4)
	t.load(end, rCtx, at+4, 4)
}

// loadChunk is how many bytes of the frame are taken at a time, loadMost how many are taken so at most: for more, a call costs less.
const (
	loadChunk = 16
	loadMost  = 512
)

// loadDirectly copies the rTemp first bytes of the frame to plan.frame and goes to done. Where they are not all in the linear part, or less than a chunk, it goes on
// behind its code. The last bytes are taken as a whole chunk that ends with them, so that part of it may be taken twice.
func (t *translator) loadDirectly(done string) {
	if t.frameMax > loadMost {
		return
	}
	otherwise, tail := t.newLabel("otherwise"), t.newLabel("tail")
	t.frameBounds(asm.R2, asm.R3)
	t.emit(asm.Mov.Reg(asm.R1, asm.R3), asm.Sub.Reg(asm.R1, asm.R2), asm.JGT.Reg(rTemp, asm.R1, otherwise), asm.JLT.Imm(rTemp, loadChunk, otherwise))
	for at := 0; at+loadChunk <= t.frameMax; at += loadChunk {
		t.emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Imm(asm.R1, int32(at+loadChunk)), asm.JGT.Reg(asm.R1, asm.R3, tail))
		t.copyWords(rPHV, t.frame+at, asm.R2, at, loadChunk)
	}
	t.bind(tail)
	t.emit(asm.Mov.Reg(asm.R0, rTemp), asm.Sub.Imm(asm.R0, loadChunk), asm.Add.Reg(asm.R2, asm.R0), asm.Add.Reg(asm.R0, rPHV))
	t.emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Imm(asm.R1, loadChunk), asm.JGT.Reg(asm.R1, asm.R3, otherwise))
	t.copyWords(asm.R0, t.frame, asm.R2, 0, loadChunk)
	t.jump(done)
	t.bind(otherwise)
}

// deparseDirectly writes the headers, rEntry bytes in all, into the frame's linear part, and goes to done; where they are not all in it, it goes on behind its code and
// has written nothing but what is written again.
func (t *translator) deparseDirectly(d *bmv2json.Deparser, done string) {
	otherwise := t.newLabel("otherwise")
	t.frameBounds(asm.R1, asm.R2)
	t.emit(asm.Sub.Reg(asm.R2, asm.R1), asm.JGT.Reg(rEntry, asm.R2, otherwise))
	t.emit(asm.Mov.Imm(rTemp, 0))
	room := 0
	for _, h := range d.Order {
		skip := t.newLabel("skip")
		size := t.lay.types[h.Type].bytes
		t.load(asm.R1, rPHV, t.lay.validity(h), 1)
		t.emit(asm.JEq.Imm(asm.R1, 0, skip))
		if t.blocks[h] { // long enough that a call costs less than the words
			t.emit(asm.Mov.Reg(asm.R2, rTemp), asm.Mov.Reg(asm.R3, rPHV), asm.Add.Imm(asm.R3, int32(t.lay.base[h.Index])), asm.Mov.Imm(asm.R4, int32(size)))
			t.storeBytes()
			t.emit(asm.JNE.Imm(asm.R0, 0, otherwise))
		} else {
			t.emit(asm.JGT.Imm(rTemp, int32(room), otherwise))
			t.frameBounds(asm.R3, asm.R2)
			t.emit(asm.Add.Reg(asm.R3, rTemp), asm.Mov.Reg(asm.R1, asm.R3), asm.Add.Imm(asm.R1, int32(size)), asm.JGT.Reg(asm.R1, asm.R2, otherwise))
			t.putFields(h.Type, t.lay.base[h.Index], 0, true)
		}
		t.emit(asm.Add.Imm(rTemp, int32(size)))
		room += size
		t.bind(skip)
		if manyLengths(d) {
			t.forget(rTemp, room, otherwise)
		}
	}
	t.jump(done)
	t.bind(otherwise)
}
