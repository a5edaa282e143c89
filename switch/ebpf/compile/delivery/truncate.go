package delivery

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// truncateFrame emits code that limits the frame to the requested length. If copied is set, the
// frame is needed again, and restore emits code that puts back the bytes that were cut off.
func (t *Delivery) truncateFrame(copied bool, drop string) (restore func()) {
	q := &t.Requests
	if !q.Any() {
		return func() {}
	}
	whole := t.NewLabel("whole")
	t.Load(asm.R1, code.PHV, q.Cut, 4)
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.StoreConstant(asm.R10, lengthOnStack, 0, 8)
	t.Emit(asm.JGE.Reg(asm.R1, asm.R2, whole))
	t.Store(asm.R10, lengthOnStack, asm.R2, 4)
	t.Store(code.PHV, memory.PHVLen, asm.R1, 4)
	if t.Captured {
		t.Bind(whole)
		return func() { t.restoreLength(false) }
	}
	if t.Hook == emit.XDP {
		t.Emit(asm.Sub.Reg(asm.R1, asm.R2), asm.Mov.Reg(asm.R2, asm.R1),
			asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnXdpAdjustTail)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Bind(whole)
		return func() {}
	}
	if copied {
		t.moveTail(true, drop)
	}
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.CutTail(drop)
	t.Bind(whole)
	return func() { t.restoreLength(copied) }
}

// wantedOnStack is the stack offset of the length to which CutTail shortens the frame.
const wantedOnStack = -80

// leastLengths are the offsets of transport headers in frames. They follow IPv4 and IPv6 headers,
// each without and with a tag, and an IPv4 header with all options.
var leastLengths = []int32{34, 38, 54, 58, 74}

// CutTail emits code that makes the frame at tc R2 bytes long. The kernel does not cut a frame
// below the start of its transport header, which the sender (even a packet socket) has recorded.
// Such a frame keeps that length, and zeros fill the bytes after the requested end, as in
// Ethernet's padding of short frames.
func (t *Delivery) CutTail(drop string) {
	done := t.NewLabel("cut")
	t.Store(asm.R10, wantedOnStack, asm.R2, 8)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeTail)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done))
	for i := range memory.ZerosAtEnd / 8 {
		t.StoreConstant(code.PHV, t.Zeros+i*8, 0, 8)
	}
	for _, least := range leastLengths {
		next := t.NewLabel("longer")
		t.Load(asm.R1, asm.R10, wantedOnStack, 8)
		t.Emit(asm.JGE.Imm(asm.R1, least, next), asm.JLT.Imm(asm.R1, memory.PacketOutLeast, drop))
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R2, least), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnSkbChangeTail)
		t.Emit(asm.JNE.Imm(asm.R0, 0, next))
		t.Load(asm.R2, asm.R10, wantedOnStack, 8)
		t.Emit(asm.Mov.Imm(asm.R4, least), asm.Sub.Reg(asm.R4, asm.R2),
			asm.JEq.Imm(asm.R4, 0, done), asm.JGT.Imm(asm.R4, memory.ZerosAtEnd, drop),
			asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.Zeros)))
		t.StoreBytes()
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Jump(done)
		t.Bind(next)
	}
	t.Jump(drop)
	t.Bind(done)
}

// lengthOnStack is the stack offset of the frame's length before it was cut. The value is 0 if the
// frame was not cut.
const lengthOnStack = -72

func (t *Delivery) restoreLength(tail bool) {
	whole := t.NewLabel("uncut")
	t.Load(asm.R1, asm.R10, lengthOnStack, 4)
	t.Emit(asm.JEq.Imm(asm.R1, 0, whole))
	if tail {
		t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnSkbChangeTail)
		t.Emit(asm.JNE.Imm(asm.R0, 0, whole))
		t.moveTail(false, whole)
		t.Load(asm.R1, asm.R10, lengthOnStack, 4)
	}
	t.Store(code.PHV, memory.PHVLen, asm.R1, 4)
	t.Bind(whole)
}

// moveTail emits code that copies the cut-off bytes from the frame to a separate buffer, or back.
// It cannot use the usual buffer, because frames to the controller or the tap pass through that
// buffer.
func (t *Delivery) moveTail(off bool, failed string) {
	t.StoreConstant(asm.R10, -4, memory.BufferOfTail, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, failed), asm.Mov.Reg(asm.R3, asm.R0))
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.Load(asm.R4, asm.R10, lengthOnStack, 4)
	t.Emit(asm.Sub.Reg(asm.R4, asm.R2), asm.JGT.Imm(asm.R4, memory.BufferSize, failed),
		asm.JEq.Imm(asm.R4, 0, failed))
	if off {
		t.LoadBytes()
	} else {
		t.StoreBytes()
	}
	t.Emit(asm.JNE.Imm(asm.R0, 0, failed))
}
