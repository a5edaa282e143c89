package delivery

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// A program at XDP passes frames that it cannot finish to the program at tc of the same port, which
// sees the frame next. The program at tc can clone, and can send by devices that accept no frames
// from XDP.
//
//	XDP:  parse, ingress ──▶ copies are to be made ──────▶ slot {PHV, "copies"}
//	      ... egress ──▶ no room for longer headers ─────▶ slot {PHV, "deparse"}
//	      ... egress ──▶ a clone, or recirculation ──────▶ slot {PHV, "leave"}
//	      ... deparse ──▶ the port is not one for XDP ───▶ slot {PHV, "send"}
//	      each of them: a metadata cookie in front of the frame ──▶ XDP_PASS
//	tc:   a metadata cookie? ──▶ the PHV back from its slot, and on from there
//
// The cookie is metadata (bpf_xdp_adjust_meta), which is kernel memory: no frame can bring one
// along. It names a slot of a ring and the run number under which the slot was filled. So a cookie
// that is stale, or whose slot has been filled again, is noticed and its frame dropped. The
// packet's operations on registers and counters at XDP are done; tc continues after them and never
// repeats them.
const (
	// Offsets in a metadata cookie.
	cookieMagic  = 0  // 8 bytes: magic number of the switch
	cookieNumber = 8  // 8 bytes: the run number
	cookieOwner  = 16 // 8 bytes: the pipeline's number
	cookieSize   = 24

	// Kinds of slots, in addition to those in recirculate.go.
	ResumeCopies = 1 // tc continues after ingress, with the traffic manager
	resumeSend   = 2 // tc continues after deparsing and sends the frame to the port in egress_port
	// tc continues after egress and writes headers for which XDP has no room
	resumeDeparse     = 3
	resumeAfterEgress = 4 // tc continues after the egress pipeline and serves its requests
)

// slotBusy replaces the number of a slot that is being filled or emptied, so that no other packet
// uses the slot. A slot that was filled but not read yet may be filled again after 512 further
// frames. The earlier frame is then lost.
const slotBusy = -1

// fillSlot emits code that copies the PHV into the next slot. It sets Temp to the slot's address
// and Entry to the slot's number. Without a free slot it jumps to lost.
func (t *Delivery) fillSlot(kind int32, lost string) {
	free, filled := t.NewLabel("free"), t.NewLabel("filled")
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsPassed), asm.Mov.Imm(code.Entry, 1),
		code.Atomic(asm.FetchAdd, asm.R1, code.Entry, 0))
	t.Emit(asm.Mov.Reg(code.Temp, code.Entry), asm.And.Imm(code.Temp, memory.ResumeSlots-1),
		asm.Mul.Imm(code.Temp, int32(t.SlotStride())), asm.Add.Imm(code.Entry, 1))
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Resume, 0), asm.Add.Reg(code.Temp, asm.R1))
	t.Load(asm.R0, code.Temp, memory.SlotNumber, 8)
	t.Emit(asm.JEq.Imm(asm.R0, slotBusy, lost), asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Imm(asm.R2, slotBusy), code.Atomic(asm.CmpXchg, code.Temp, asm.R2, memory.SlotNumber))
	t.Emit(asm.JNE.Reg(asm.R0, asm.R3, lost))
	t.StoreConstant(code.Temp, memory.SlotKind, kind, 4)
	t.Emit(asm.Mov.Reg(asm.R1, code.Temp), asm.Add.Imm(asm.R1, memory.SlotPHV),
		asm.Mov.Imm(asm.R2, int32(t.PHVBytes)), asm.Mov.Reg(asm.R3, code.PHV))
	t.Call(asm.FnProbeReadKernel)
	t.Emit(asm.JNE.Imm(asm.R0, 0, free))
	// The atomic operation makes the copy visible before the slot's number on every machine.
	t.Emit(asm.Mov.Reg(asm.R1, code.Entry), code.Atomic(asm.Xchg, code.Temp, asm.R1, memory.SlotNumber))
	t.Jump(filled)
	t.Bind(free)
	t.Emit(asm.Mov.Imm(asm.R1, 0), code.Atomic(asm.Xchg, code.Temp, asm.R1, memory.SlotNumber))
	t.Jump(lost)
	t.Bind(filled)
}

// PassToTC emits code that ends the function and the program at XDP. The frame goes to tc with a
// cookie, or is dropped if that is impossible. The code uses all registers but PHV and Ctx.
func (t *Delivery) PassToTC(kind, drop int32) {
	lost := t.NewLabel("lost")
	t.fillSlot(kind, lost)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R2, -cookieSize))
	t.Call(asm.FnXdpAdjustMeta)
	t.Emit(asm.JNE.Imm(asm.R0, 0, lost))
	t.Load(asm.R2, code.Ctx, emit.XDPData, 4)
	t.Load(asm.R1, code.Ctx, emit.XDPDataMeta, 4)
	t.Emit(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, cookieSize),
		asm.JGT.Reg(asm.R3, asm.R2, lost))
	t.LoadConstant(asm.R2, t.Maps.Magic)
	t.Store(asm.R1, cookieMagic, asm.R2, 8)
	t.Store(asm.R1, cookieNumber, code.Entry, 8)
	t.LoadConstant(asm.R2, t.Maps.Number)
	t.Store(asm.R1, cookieOwner, asm.R2, 8)
	t.Emit(asm.Mov.Imm(asm.R0, emit.XDPPass), asm.Return())
	t.Bind(lost)
	t.countLostResume()
	t.Emit(asm.Mov.Imm(asm.R0, drop), asm.Return())
}

func (t *Delivery) countLostResume() {
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsLost), asm.Mov.Imm(asm.R2, 1),
		code.Atomic(asm.AddAtomic, asm.R1, asm.R2, 0))
}

// ResumeFromXDP emits the beginning of the program at tc. A frame with a cookie continues where XDP
// left it, at one of four labels. Other frames continue after this code, with only the context in
// Ctx.
func (t *Delivery) ResumeFromXDP(copies, deparse, leave, send string) {
	plain, stale, foreign, free := t.NewLabel("plain"), t.NewLabel("stale"), t.NewLabel("foreign"),
		t.NewLabel("free")
	t.Load(asm.R2, code.Ctx, emit.SKBDataMeta, 4)
	t.Load(asm.R3, code.Ctx, emit.SKBData, 4)
	t.Emit(asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, cookieSize),
		asm.JGT.Reg(asm.R4, asm.R3, plain))
	t.Load(asm.R4, asm.R2, cookieMagic, 8)
	t.LoadConstant(asm.R5, t.Maps.Magic)
	t.Emit(asm.JNE.Reg(asm.R4, asm.R5, plain))
	t.Load(code.Entry, asm.R2, cookieNumber, 8)
	t.Load(asm.R4, asm.R2, cookieOwner, 8)
	t.LoadConstant(asm.R5, t.Maps.Number)
	t.Emit(asm.JNE.Reg(asm.R4, asm.R5, foreign))
	// This marks the cookie as used, because bytes in front of a frame may travel with the frame to
	// another port.
	t.StoreConstant(asm.R2, cookieMagic, 0, 8)

	t.LookupPHV("ingress.drop")
	t.Emit(asm.Mov.Reg(code.Temp, code.Entry), asm.Sub.Imm(code.Temp, 1),
		asm.And.Imm(code.Temp, memory.ResumeSlots-1), asm.Mul.Imm(code.Temp, int32(t.SlotStride())))
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Resume, 0), asm.Add.Reg(code.Temp, asm.R1))
	t.Emit(asm.JEq.Imm(code.Entry, slotBusy, stale), asm.Mov.Reg(asm.R0, code.Entry),
		asm.Mov.Imm(asm.R2, slotBusy), code.Atomic(asm.CmpXchg, code.Temp, asm.R2, memory.SlotNumber))
	t.Emit(asm.JNE.Reg(asm.R0, code.Entry, stale))
	t.Emit(asm.Mov.Reg(asm.R1, code.PHV), asm.Mov.Imm(asm.R2, int32(t.PHVBytes)),
		asm.Mov.Reg(asm.R3, code.Temp), asm.Add.Imm(asm.R3, memory.SlotPHV))
	t.Call(asm.FnProbeReadKernel)
	t.Emit(asm.JNE.Imm(asm.R0, 0, free))
	t.Load(asm.R8, code.Temp, memory.SlotKind, 4)
	t.Store(asm.R10, -56, asm.R8, 8)
	t.Emit(asm.Mov.Imm(asm.R1, 0), code.Atomic(asm.Xchg, code.Temp, asm.R1, memory.SlotNumber))
	t.RestoreTags("ingress.drop")
	t.Load(asm.R8, asm.R10, -56, 8)
	t.Emit(asm.JEq.Imm(asm.R8, resumeSend, send), asm.JEq.Imm(asm.R8, resumeDeparse, deparse))
	if t.Requests.Reinjects() {
		t.Emit(asm.JEq.Imm(asm.R8, resumeAfterEgress, leave))
	}
	t.Jump(copies)

	t.Bind(free)
	t.Emit(asm.Mov.Imm(asm.R1, 0), code.Atomic(asm.Xchg, code.Temp, asm.R1, memory.SlotNumber))
	t.Jump(stale)
	// The cookie belongs to the previous or next program. If that program is still attached, and
	// runs after this program, it processes the frame.
	t.Bind(foreign)
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsPrevious))
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.JNE.Reg(asm.R1, asm.R4, stale), asm.Mov.Imm(asm.R0, emit.TCXNext), asm.Return())
	t.Bind(stale)
	t.countLostResume()
	t.Jump("ingress.drop")
	t.Bind(plain)
}

// ResizeAtXDP emits code that changes the space for a frame's headers at XDP. A driver leaves some
// 256 bytes free in front of a frame, and a frame that needs more continues at tc. If the frame may
// leave through a port that does not accept frames from XDP, there must also be room for a cookie.
func (t *Delivery) ResizeAtXDP(drop string) {
	shrink, done := t.NewLabel("shrink"), t.NewLabel("resized")
	t.Emit(asm.JGT.Reg(asm.R1, code.Entry, shrink))
	if t.Maps.Resume != 0 && !t.Captured {
		up, fits := t.NewLabel("up"), t.NewLabel("fits")
		t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, code.Entry),
			asm.Sub.Imm(asm.R2, cookieSize), asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnXdpAdjustHead)
		t.Emit(asm.JNE.Imm(asm.R0, 0, up), asm.Mov.Imm(asm.R2, cookieSize),
			asm.Mov.Reg(asm.R1, code.Ctx))
		t.Jump(fits)
		t.Bind(up)
		t.PassToTC(resumeDeparse, emit.VerdictDrop)
		t.Bind(fits)
		t.Call(asm.FnXdpAdjustHead)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Jump(done)
	}
	t.Bind(shrink)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, code.Entry),
		asm.Mov.Reg(asm.R1, code.Ctx))
	t.Call(asm.FnXdpAdjustHead)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(done)
}

// LeaveIfPassed emits code that ends the program if egress has passed the frame on to tc.
func (t *Delivery) LeaveIfPassed() {
	if t.Hook != emit.XDP || t.Maps.Resume == 0 {
		return
	}
	stay := t.NewLabel("stay")
	t.Emit(asm.JNE.Imm(asm.R0, emit.VerdictPassed, stay), asm.Mov.Imm(asm.R0, emit.XDPPass), asm.Return())
	t.Bind(stay)
}
