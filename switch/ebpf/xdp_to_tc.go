package ebpf

import (
	"github.com/cilium/ebpf/asm"
)

// What a program at XDP cannot finish, it hands over to the program at tc of the same port, which sees the frame next: it can clone, and it can send by devices
// that take no frames from XDP.
//
//	XDP:  parse, ingress ──▶ copies are to be made ──────────────▶ slot {PHV, "copies"} ┐
//	      ... egress ──▶ no room for longer headers ──────────────▶ slot {PHV, "deparse"} │
//	      ... deparse ──▶ the port is not one for XDP ────────────▶ slot {PHV, "send"}   ├─ metadata cookie ─▶ XDP_PASS
//	tc:   a metadata cookie? ──▶ the PHV back from its slot, and on from there ◀────────────────────────────────────────┘
//
// The cookie is metadata (bpf_xdp_adjust_meta), which is kernel memory: no frame can bring one along. It names a slot of a ring and the run number under which
// the slot was filled, so that a cookie that is stale, or whose slot has been filled again, is noticed and its frame dropped. Whatever the packet did to registers
// and counters at XDP is done; tc goes on behind it and never does it again.
const (
	resumeSlots = 512 // a NAPI poll is 64 frames, and tc sees each before the next one is polled on that CPU

	// A slot: its number, what to do, and the PHV.
	slotNumber = 0 // 8 bytes: the run number that filled it; 0 if it is free; slotBusy while it is being filled or emptied
	slotKind   = 8 // 4 bytes
	slotPHV    = 16

	// A metadata cookie.
	cookieMagic  = 0  // 8 bytes: of the switch
	cookieNumber = 8  // 8 bytes: the run number
	cookieOwner  = 16 // 8 bytes: the pipeline's number
	cookieSize   = 24

	resumeCopies  = 1 // on after ingress: the traffic manager
	resumeSend    = 2 // on after deparsing: out by the port in egress_port
	resumeDeparse = 3 // on after egress: the headers, which are longer than XDP has room for
	resumeLeave   = 4 // on after the egress pipeline, with what it has asked for
)

// slotBusy keeps others away from a slot. A slot that is filled but was not taken yet may be filled again: its frame, 512 behind, is lost.
const slotBusy = -1

// slotStride is how far slots are apart.
func (p *plan) slotStride() int { return (slotPHV + p.phvSize + 63) &^ 63 }

// fillSlot copies the PHV into the next slot: rTemp points to it then, and rEntry is its number. Without a free slot it goes to lost.
func (t *translator) fillSlot(kind int32, lost string) {
	free, filled := t.newLabel("free"), t.newLabel("filled")
	t.emit(asm.LoadMapValue(asm.R1, t.fds.ports, portsPassed), asm.Mov.Imm(rEntry, 1), atomically(asm.FetchAdd, asm.R1, rEntry, 0))
	t.emit(asm.Mov.Reg(rTemp, rEntry), asm.And.Imm(rTemp, resumeSlots-1), asm.Mul.Imm(rTemp, int32(t.slotStride())), asm.Add.Imm(rEntry, 1))
	t.emit(asm.LoadMapValue(asm.R1, t.fds.resume, 0), asm.Add.Reg(rTemp, asm.R1))
	t.load(asm.R0, rTemp, slotNumber, 8)
	t.emit(asm.JEq.Imm(asm.R0, slotBusy, lost), asm.Mov.Reg(asm.R3, asm.R0), asm.Mov.Imm(asm.R2, slotBusy), atomically(asm.CmpXchg, rTemp, asm.R2, slotNumber))
	t.emit(asm.JNE.Reg(asm.R0, asm.R3, lost))
	t.storeConstant(rTemp, slotKind, kind, 4)
	t.emit(asm.Mov.Reg(asm.R1, rTemp), asm.Add.Imm(asm.R1, slotPHV), asm.Mov.Imm(asm.R2, int32(t.phvSize)), asm.Mov.Reg(asm.R3, rPHV))
	t.call(asm.FnProbeReadKernel)
	t.emit(asm.JNE.Imm(asm.R0, 0, free))
	t.emit(asm.Mov.Reg(asm.R1, rEntry), atomically(asm.Xchg, rTemp, asm.R1, slotNumber)) // after what was copied, on every machine
	t.jump(filled)
	t.bind(free)
	t.emit(asm.Mov.Imm(asm.R1, 0), atomically(asm.Xchg, rTemp, asm.R1, slotNumber))
	t.jump(lost)
	t.bind(filled)
}

// passToTC ends the function, as the program at XDP does: the frame goes to tc with a cookie, or is dropped where that cannot be. It uses all registers but rPHV and rCtx.
func (t *translator) passToTC(kind, drop int32) {
	lost := t.newLabel("lost")
	t.fillSlot(kind, lost)
	t.emit(asm.Mov.Reg(asm.R1, rCtx), asm.Mov.Imm(asm.R2, -cookieSize))
	t.call(asm.FnXdpAdjustMeta)
	t.emit(asm.JNE.Imm(asm.R0, 0, lost))
	t.load(asm.R2, rCtx, xdpData, 4)
	t.load(asm.R1, rCtx, xdpDataMeta, 4)
	t.emit(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, cookieSize), asm.JGT.Reg(asm.R3, asm.R2, lost))
	t.constant(asm.R2, t.fds.magic)
	t.store(asm.R1, cookieMagic, asm.R2, 8)
	t.store(asm.R1, cookieNumber, rEntry, 8)
	t.constant(asm.R2, t.fds.number)
	t.store(asm.R1, cookieOwner, asm.R2, 8)
	t.emit(asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	t.bind(lost)
	t.countLostResume()
	t.emit(asm.Mov.Imm(asm.R0, drop), asm.Return())
}

func (t *translator) countLostResume() {
	t.emit(asm.LoadMapValue(asm.R1, t.fds.ports, portsLost), asm.Mov.Imm(asm.R2, 1), atomically(asm.AddAtomic, asm.R1, asm.R2, 0))
}

// resumeFromXDP is what tc begins with: a frame with a cookie goes on where XDP left it, at one of four labels. Others go on here, with the context in rCtx and nothing else.
func (t *translator) resumeFromXDP(copies, deparse, leave, send string) {
	plain, stale, foreign, free := t.newLabel("plain"), t.newLabel("stale"), t.newLabel("foreign"), t.newLabel("free")
	t.load(asm.R2, rCtx, skbDataMeta, 4)
	t.load(asm.R3, rCtx, skbData, 4)
	t.emit(asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, cookieSize), asm.JGT.Reg(asm.R4, asm.R3, plain))
	t.load(asm.R4, asm.R2, cookieMagic, 8)
	t.constant(asm.R5, t.fds.magic)
	t.emit(asm.JNE.Reg(asm.R4, asm.R5, plain))
	t.load(rEntry, asm.R2, cookieNumber, 8)
	t.load(asm.R4, asm.R2, cookieOwner, 8)
	t.constant(asm.R5, t.fds.number)
	t.emit(asm.JNE.Reg(asm.R4, asm.R5, foreign))
	t.storeConstant(asm.R2, cookieMagic, 0, 8) // used: what lies in front of a frame may go with it to another port

	t.lookupPHV("ingress.drop")
	t.emit(asm.Mov.Reg(rTemp, rEntry), asm.Sub.Imm(rTemp, 1), asm.And.Imm(rTemp, resumeSlots-1), asm.Mul.Imm(rTemp, int32(t.slotStride())))
	t.emit(asm.LoadMapValue(asm.R1, t.fds.resume, 0), asm.Add.Reg(rTemp, asm.R1))
	t.emit(asm.JEq.Imm(rEntry, slotBusy, stale), asm.Mov.Reg(asm.R0, rEntry), asm.Mov.Imm(asm.R2, slotBusy), atomically(asm.CmpXchg, rTemp, asm.R2, slotNumber))
	t.emit(asm.JNE.Reg(asm.R0, rEntry, stale))
	t.emit(asm.Mov.Reg(asm.R1, rPHV), asm.Mov.Imm(asm.R2, int32(t.phvSize)), asm.Mov.Reg(asm.R3, rTemp), asm.Add.Imm(asm.R3, slotPHV))
	t.call(asm.FnProbeReadKernel)
	t.emit(asm.JNE.Imm(asm.R0, 0, free))
	t.load(asm.R8, rTemp, slotKind, 4)
	t.store(asm.R10, -56, asm.R8, 8)
	t.emit(asm.Mov.Imm(asm.R1, 0), atomically(asm.Xchg, rTemp, asm.R1, slotNumber))
	t.restoreTags("ingress.drop")
	t.load(asm.R8, asm.R10, -56, 8)
	t.emit(asm.JEq.Imm(asm.R8, resumeSend, send), asm.JEq.Imm(asm.R8, resumeDeparse, deparse))
	if t.requests.reinjects() {
		t.emit(asm.JEq.Imm(asm.R8, resumeLeave, leave))
	}
	t.jump(copies)

	t.bind(free)
	t.emit(asm.Mov.Imm(asm.R1, 0), atomically(asm.Xchg, rTemp, asm.R1, slotNumber))
	t.jump(stale)
	t.bind(foreign) // of the program before or after this one: if that is still attached, behind this one, it takes the frame
	t.emit(asm.LoadMapValue(asm.R1, t.fds.ports, portsPrevious))
	t.load(asm.R1, asm.R1, 0, 8)
	t.emit(asm.JNE.Reg(asm.R1, asm.R4, stale), asm.Mov.Imm(asm.R0, tcxNext), asm.Return())
	t.bind(stale)
	t.countLostResume()
	t.jump("ingress.drop")
	t.bind(plain)
}

// resizeAtXDP is resize at XDP. A driver leaves some 256 bytes free in front of a frame; what needs more goes on at tc. There must be room for a cookie, too, if the frame
// is to leave by a port that XDP does not send by.
func (t *translator) resizeAtXDP(drop string) {
	shrink, done := t.newLabel("shrink"), t.newLabel("resized")
	t.emit(asm.JGT.Reg(asm.R1, rEntry, shrink))
	if t.fds.resume != 0 && !t.captured {
		up, fits := t.newLabel("up"), t.newLabel("fits")
		t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, rEntry), asm.Sub.Imm(asm.R2, cookieSize), asm.Mov.Reg(asm.R1, rCtx))
		t.call(asm.FnXdpAdjustHead)
		t.emit(asm.JNE.Imm(asm.R0, 0, up), asm.Mov.Imm(asm.R2, cookieSize), asm.Mov.Reg(asm.R1, rCtx))
		t.jump(fits)
		t.bind(up)
		t.passToTC(resumeDeparse, verdictDrop)
		t.bind(fits)
		t.call(asm.FnXdpAdjustHead)
		t.emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.jump(done)
	}
	t.bind(shrink)
	t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, rEntry), asm.Mov.Reg(asm.R1, rCtx))
	t.call(asm.FnXdpAdjustHead)
	t.emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.bind(done)
}

// leaveIfPassed ends the program if egress has handed the frame over to tc.
func (t *translator) leaveIfPassed() {
	if t.hook != hookXDP || t.fds.resume == 0 {
		return
	}
	stay := t.newLabel("stay")
	t.emit(asm.JNE.Imm(asm.R0, verdictPassed, stay), asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	t.bind(stay)
}

// headers is the function at tc that writes the headers of a frame which egress has been through at XDP.
func (t *translator) headers() {
	t.emit(asm.Mov.Reg(rCtx, asm.R1), asm.Mov.Reg(rPHV, asm.R2))
	t.deparse("headers.drop")
	t.emit(asm.Mov.Imm(asm.R0, verdictSend), asm.Return())
	t.bind("headers.drop")
	t.emit(asm.Mov.Imm(asm.R0, verdictDrop), asm.Return())
}
