package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// send gives the frame to the port in egress_port: the controller, or an interface. A copy is sent
// at once and the frame stays; the last is handed over.
func (t *translator) send(copied bool) {
	done, toPort, uncut := t.NewLabel("sent"), t.NewLabel("port"), t.NewLabel("uncut")
	end := func() {
		t.Bind(uncut)
		if !copied {
			t.verdict(verdictDrop)
		}
	}
	t.loadEgressPort(asm.R8)
	restore := t.truncateFrame(copied, uncut)
	if t.Captured {
		t.sendToRing(t.maps.PacketIn, func() { t.Store(asm.R0, 0, asm.R8, 4) }, 4)
		restore()
		end()
		return
	}
	if t.CPUPort != 0 {
		t.Emit(asm.JNE.Imm(asm.R8, int32(t.CPUPort), toPort))
		t.sendToRing(t.maps.PacketIn, func() {}, 0)
		t.Jump(done)
	}
	t.Bind(toPort)
	if t.hook == XDP {
		t.sendFromXDP(done)
		t.Bind(done)
		end()
		return
	}
	t.tapFrame(TapOut, t.loadEgressPort)
	if t.maps.Tap != 0 {
		t.loadEgressPort(asm.R8)
	}
	t.Emit(asm.JGE.Imm(asm.R8, MaxPorts, done), asm.LSh.Imm(asm.R8, 2),
		asm.LoadMapValue(asm.R1, t.maps.Ports, PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R8, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R8, 0, done))
	if t.Mark != 0 {
		t.StoreConstant(code.Ctx, skbMark, int32(t.Mark), 4)
	}
	clone := func() {
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, asm.R8), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnCloneRedirect)
		t.Jump(done)
	}
	if copied {
		clone()
		t.Bind(done)
		restore()
		end()
		return
	}
	// A packet-out is run without a device under it that could carry a redirect out.
	received := t.NewLabel("received")
	t.Load(asm.R1, code.PHV, phvPort, 4)
	t.Emit(asm.JNE.Imm(asm.R1, int32(t.CPUPort), received))
	clone()
	t.Bind(received)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(done)
	end()
}

// sendFromXDP sends the frame by the port in R8: back by its own interface, by another one that
// takes frames from XDP, or through tc.
func (t *translator) sendFromXDP(nowhere string) {
	other, up := t.NewLabel("other"), t.NewLabel("up")
	t.Emit(asm.JGE.Imm(asm.R8, MaxPorts, nowhere), asm.LSh.Imm(asm.R8, 2),
		asm.LoadMapValue(asm.R1, t.maps.Ports, PortsXDP), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, up))
	if t.maps.Tap != 0 {
		t.tapFrame(TapOut, t.loadEgressPort)
		t.loadEgressPort(asm.R8)
		t.Emit(asm.LSh.Imm(asm.R8, 2), asm.LoadMapValue(asm.R1, t.maps.Ports, PortsXDP),
			asm.JGE.Imm(asm.R8, 4*MaxPorts, nowhere), asm.Add.Reg(asm.R1, asm.R8))
		t.Load(asm.R2, asm.R1, 0, 4)
	}
	t.Load(asm.R1, code.Ctx, xdpIfindex, 4)
	t.Emit(asm.JNE.Reg(asm.R1, asm.R2, other), asm.Mov.Imm(asm.R0, xdpTx), asm.Return())
	t.Bind(other)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(up)
	t.Emit(asm.LoadMapValue(asm.R1, t.maps.Ports, PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, nowhere))
	t.passToTC(resumeSend, xdpDrop)
}

func (t *translator) loadEgressPort(dst asm.Register) {
	egress := t.Layout.Field(t.std.egressPort)
	t.Load(dst, code.PHV, egress.Off, egress.Size)
}

// What precedes a frame in the tap's ring: the port and the direction, 4 bytes each, and the clock
// (package clock), 8 bytes.
const (
	TapHeader = 16
	tapIn     = 0
	TapOut    = 1
)

// tapFrame copies the frame to the tap, if there is one. It uses all registers but PHV and Ctx.
func (t *translator) tapFrame(direction int32, port func(dst asm.Register)) {
	if t.maps.Tap == 0 {
		return
	}
	t.sendToRing(t.maps.Tap, func() {
		port(asm.R1)
		t.Store(asm.R0, 0, asm.R1, 4)
		t.StoreConstant(asm.R0, 4, direction, 4)
		t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
		t.Call(asm.FnKtimeGetBootNs)
		t.Store(code.Entry, 8, asm.R0, 8)
		t.Emit(asm.Mov.Reg(asm.R0, code.Entry))
	}, TapHeader)
}

// sendToRing puts the frame into a ring, from which the process takes packet-ins or the tap's
// frames, after before bytes that first writes at R0. It is lost if the ring is full.
func (t *translator) sendToRing(ring int, first func(), before int) {
	no := t.NewLabel("lost")
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, no))
	first()
	t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
	t.Load(code.Temp, code.PHV, phvLen, 4)
	t.Emit(asm.JEq.Imm(code.Temp, 0, no), asm.JGT.Imm(code.Temp, int32(BufferSize-before), no))
	t.Emit(asm.Mov.Reg(asm.R3, code.Entry), asm.Add.Imm(asm.R3, int32(before)),
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, no), asm.Add.Imm(code.Temp, int32(before)))
	t.Emit(asm.LoadMapPtr(asm.R1, ring), asm.Mov.Reg(asm.R2, code.Entry),
		asm.Mov.Reg(asm.R3, code.Temp), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnRingbufOutput)
	t.Bind(no)
}

// BufferSize is the longest frame that can go to the controller, or whose headers can change in
// size at tc.
const BufferSize = 16 << 10

// Buffers is how many there are for each CPU: 0 is for frames and payloads that are moved at once,
// bufferOfTail for what is cut off while a copy leaves.
const (
	Buffers      = 2
	bufferOfTail = 1
)
