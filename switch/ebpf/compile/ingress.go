package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/control"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// entry emits the program for a frame that has arrived on an interface.
func (t *translator) entry() {
	drop := "ingress.drop"
	if t.Refused && t.Maps.Paths {
		// For tests, the verifier must refuse this read of an uninitialized register.
		t.Emit(asm.Mov.Reg(asm.R0, code.Temp))
	}
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
	t.restoreFrame()
	t.control.PutMark(control.MarkEntry)
	if t.Hook == emit.TC && t.Maps.Resume != 0 {
		t.delivery.ResumeFromXDP("ingress.done", "ingress.deparse", "ingress.leave", "ingress.send")
	}
	reinjects := t.Requests.Reinjects() && t.Hook == emit.TC && !t.Captured
	if reinjects {
		t.delivery.ResumeReinjected("clone.copies", "ingress.parse", "ingress.done")
		t.StoreConstant(asm.R10, delivery.SlotOnStack, 0, 8)
	}
	t.hostFilter()
	t.LookupPHV(drop)

	t.control.PutMark("(the PHV)")
	t.startPacket(reinjects, drop)
	t.control.PutMark("(a packet begins)")
	t.loadFrame(drop)
	t.control.PutMark("(the frame is read)")
	t.headers.Parse()
	t.control.PutMark("(parsed)")
	if reinjects {
		t.delivery.AfterParsing("clone.copies")
	}
	t.hashes.VerifyChecksums()

	t.control.RunPipeline("ingress")
	t.control.PutMark("(ingress is over)")
	t.Bind("ingress.done")
	t.afterIngress()
	t.resumePoints(drop)
	if reinjects && t.Requests.Clones {
		t.Bind("clone.copies")
		t.replicateClone()
	}

	t.Bind(drop)
	t.DropFrame(emit.VerdictDrop)
}

// startPacket emits code that initializes the PHV for a packet that has just arrived. A packet that
// is parsed again skips the code that loads a packet-out, because it already is a frame.
func (t *translator) startPacket(reinjects bool, drop string) {
	ifindex := emit.SKBIfindex
	if t.Hook == emit.XDP {
		ifindex = emit.XDPIfindex
	}
	t.Load(asm.R1, code.Ctx, ifindex, 4)
	t.Emit(asm.JGE.Imm(asm.R1, memory.MaxIfindex, drop), asm.LSh.Imm(asm.R1, 2),
		asm.LoadMapValue(asm.R2, t.Maps.Ports, memory.PortsByIfindex), asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R3, 0, drop), asm.Sub.Imm(asm.R3, 1))
	t.Store(code.PHV, memory.PHVPort, asm.R3, 4)
	t.delivery.StartRequests()
	t.delivery.StartDigest()
	if t.Hook == emit.TC {
		t.delivery.LoadPacketOut(drop)
		if reinjects {
			t.Bind("ingress.parse")
		}
	}
	t.locks.RecordEpoch()
	if t.Hook == emit.TC {
		t.delivery.RestoreTags(drop)
	}
	t.FrameLength(asm.R4)
	t.Store(code.PHV, memory.PHVLen, asm.R4, 4)
	t.Store(code.PHV, memory.PHVInLen, asm.R4, 4)

	if t.Maps.Tap != 0 { // A packet that passes the program again is copied to the tap again.
		t.delivery.TapFrame(memory.TapIn, func(dst asm.Register) { t.Load(dst, code.PHV, memory.PHVPort, 4) })
		t.Load(asm.R4, code.PHV, memory.PHVLen, 4)
	}

	// A packet starts with all headers invalid and all metadata 0.
	t.zeroMetadata()
	t.Zero(code.PHV, memory.PHVHit, 8)
	t.Store(code.PHV, memory.PHVLength, asm.R4, 4)
	t.SetStandard(t.Std.PacketLength, asm.R4)
	t.Load(asm.R3, code.PHV, memory.PHVPort, 4)
	t.SetStandard(t.Std.IngressPort, asm.R3)
	t.StartClock()
	if reinjects {
		t.delivery.BeforeParsing()
	}
}

// loadFrame emits code that copies the bytes that the parser may read from the frame into the PHV.
func (t *translator) loadFrame(drop string) {
	whole := t.NewLabel("whole")
	t.Load(asm.R4, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.JLE.Imm(asm.R4, int32(t.FrameMax), whole), asm.Mov.Imm(asm.R4, int32(t.FrameMax)))
	t.Bind(whole)
	t.Emit(asm.JEq.Imm(asm.R4, 0, drop), asm.Mov.Reg(code.Temp, asm.R4))
	loaded := t.NewLabel("loaded")
	t.headers.LoadDirectly(loaded)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.Frame)),
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.LoadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(loaded)
	t.Emit(asm.Mov.Imm(code.Entry, 0))
}

// resumePoints emits the points at which tc continues packets from XDP, except for packets that
// must be copied.
func (t *translator) resumePoints(drop string) {
	if t.Hook != emit.TC || t.Maps.Resume == 0 {
		return
	}
	t.Bind("ingress.deparse")
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("headers")
	t.Emit(asm.JEq.Imm(asm.R0, emit.VerdictDrop, drop))
	t.Bind("ingress.send")
	t.delivery.SendFrame(false)
	if t.Requests.Reinjects() {
		t.Bind("ingress.leave")
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
		t.CallFunction("leave")
		t.Emit(asm.JEq.Imm(asm.R0, emit.VerdictDrop, drop))
		t.Jump("ingress.send")
	}
}
