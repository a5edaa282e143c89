package ebpf

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Direct access to the frame. A helper that copies bytes into a frame (bpf_skb_store_bytes) costs about as much as the rest of the deparser: it finds out where the
// bytes are, whether they are shared, and copies a number of bytes that it does not know beforehand. Where they are in the frame's linear part, as headers nearly always are, a program
// may write them itself, after comparing its pointer with the part's end; the verifier sees to that. At tc the kernel makes the frame's head this program's own
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
		t.place(skip)
	}
	t.jump(done)
	t.place(otherwise)
}
