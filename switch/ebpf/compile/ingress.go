package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// entry is the program: a frame has come in by an interface.
func (t *translator) entry() {
	drop := "ingress.drop"
	if t.Refused && t.maps.Paths {
		t.Emit(asm.Mov.Reg(asm.R0, code.Temp)) // which nothing has been put into
	}
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
	t.restoreFrame()
	t.mark(markEntry)
	if t.hook == TC && t.maps.Resume != 0 {
		t.resumeFromXDP("ingress.done", "ingress.deparse", "ingress.leave", "ingress.send")
	}
	reinjects := t.Requests.Reinjects() && t.hook == TC && !t.Captured
	if reinjects {
		t.resumeReinjected("clone.copies", "ingress.parse", "ingress.done")
		t.StoreConstant(asm.R10, slotOnStack, 0, 8)
	}
	t.hostFilter()
	t.lookupPHV(drop)

	t.mark("(the PHV)")
	t.startPacket(reinjects, drop)
	t.mark("(a packet begins)")
	t.loadFrame(drop)
	t.mark("(the frame is read)")
	t.parse()
	t.mark("(parsed)")
	if reinjects {
		t.afterParsing("clone.copies")
	}
	t.verifyChecksums()

	t.runPipeline("ingress")
	t.mark("(ingress is over)")
	t.Bind("ingress.done")
	t.afterIngress()
	t.resumePoints(drop)
	if reinjects && t.Requests.Clones {
		t.Bind("clone.copies")
		t.replicateClone()
	}

	t.Bind(drop)
	t.verdict(verdictDrop)
}

// startPacket makes the PHV that of a packet that has just come in. A packet that is parsed anew
// joins behind what takes a packet-out in: it is the frame that it is.
func (t *translator) startPacket(reinjects bool, drop string) {
	ifindex := skbIfindex
	if t.hook == XDP {
		ifindex = xdpIfindex
	}
	t.Load(asm.R1, code.Ctx, ifindex, 4)
	t.Emit(asm.JGE.Imm(asm.R1, MaxIfindex, drop), asm.LSh.Imm(asm.R1, 2),
		asm.LoadMapValue(asm.R2, t.maps.Ports, PortsByIfindex), asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R3, 0, drop), asm.Sub.Imm(asm.R3, 1))
	t.Store(code.PHV, phvPort, asm.R3, 4)
	t.startRequests()
	t.startDigest()
	if t.hook == TC {
		t.loadPacketOut(drop)
		if reinjects {
			t.Bind("ingress.parse")
		}
	}
	t.recordEpoch()
	if t.hook == TC {
		t.restoreTags(drop)
	}
	t.frameLength(asm.R4)
	t.Store(code.PHV, phvLen, asm.R4, 4)
	t.Store(code.PHV, phvInLen, asm.R4, 4)

	if t.maps.Tap != 0 { // (a packet that comes back is seen again)
		t.tapFrame(tapIn, func(dst asm.Register) { t.Load(dst, code.PHV, phvPort, 4) })
		t.Load(asm.R4, code.PHV, phvLen, 4)
	}

	// A packet starts with no header valid and all metadata 0.
	t.zeroMetadata()
	t.Zero(code.PHV, phvHit, 8)
	t.Store(code.PHV, phvLength, asm.R4, 4)
	t.setStandard(t.std.packetLength, asm.R4)
	t.Load(asm.R3, code.PHV, phvPort, 4)
	t.setStandard(t.std.ingressPort, asm.R3)
	t.startClock()
	if reinjects {
		t.beforeParsing()
	}
}

// loadFrame reads the bytes that the parser may look at into the PHV.
func (t *translator) loadFrame(drop string) {
	whole := t.NewLabel("whole")
	t.Load(asm.R4, code.PHV, phvLen, 4)
	t.Emit(asm.JLE.Imm(asm.R4, int32(t.frameMax), whole), asm.Mov.Imm(asm.R4, int32(t.frameMax)))
	t.Bind(whole)
	t.Emit(asm.JEq.Imm(asm.R4, 0, drop), asm.Mov.Reg(code.Temp, asm.R4))
	loaded := t.NewLabel("loaded")
	t.loadDirectly(loaded)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.frame)),
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(loaded)
	t.Emit(asm.Mov.Imm(code.Entry, 0))
}

// resumePoints is where packets go on that XDP has passed to tc, but for those whose copies are to
// be made.
func (t *translator) resumePoints(drop string) {
	if t.hook != TC || t.maps.Resume == 0 {
		return
	}
	t.Bind("ingress.deparse")
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("headers")
	t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, drop))
	t.Bind("ingress.send")
	t.send(false)
	if t.Requests.Reinjects() {
		t.Bind("ingress.leave")
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
		t.CallFunction("leave")
		t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, drop))
		t.Jump("ingress.send")
	}
}

// restoreTags puts the 802.1Q tags back into the frame that the kernel has taken out on its way to
// tc: the program sees the frame as it was on the wire.
func (t *translator) restoreTags(drop string) {
	none, done := t.NewLabel("untagged"), t.NewLabel("tagged")
	const tags, addresses = -24, -40 // on the stack
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	for i := range 2 { // popping a tag takes the next one out of the frame
		t.Load(asm.R1, code.Ctx, skbVLANPresent, 4)
		if i == 0 {
			t.Emit(asm.JEq.Imm(asm.R1, 0, none))
		} else {
			t.Emit(asm.JEq.Imm(asm.R1, 0, done))
		}
		t.Load(asm.R1, code.Ctx, skbVLANProto, 4)
		t.Store(asm.R10, tags+4*i, asm.R1, 2)
		t.Load(asm.R1, code.Ctx, skbVLANTCI, 4)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.Half))
		t.Store(asm.R10, tags+4*i+2, asm.R1, 2)
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnSkbVlanPop)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop), asm.Add.Imm(code.Temp, 4))
	}
	t.Load(asm.R1, code.Ctx, skbVLANPresent, 4)
	t.Emit(asm.JNE.Imm(asm.R1, 0, drop)) // a third tag
	t.Bind(done)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeHead)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Reg(asm.R3, asm.R10),
		asm.Add.Imm(asm.R3, addresses), asm.Mov.Imm(asm.R4, 12))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, addresses),
		asm.Mov.Imm(asm.R4, 12))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	one := t.NewLabel("one")
	t.Emit(asm.Mov.Imm(asm.R4, 4), asm.JEq.Imm(code.Temp, 4, one), asm.Mov.Imm(asm.R4, 8))
	t.Bind(one)
	t.Emit(asm.Mov.Imm(asm.R2, 12), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, tags))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(none)
}
