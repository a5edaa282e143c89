package delivery

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// SendFrame emits code that sends the frame to the port in egress_port: the controller or an
// interface. If copied is set, the code sends a copy, and the program continues with the frame.
// Otherwise the code sends the frame itself, and the program ends.
func (t *Delivery) SendFrame(copied bool) {
	done, toPort, uncut := t.NewLabel("sent"), t.NewLabel("port"), t.NewLabel("uncut")
	end := func() {
		t.Bind(uncut)
		if !copied {
			t.DropFrame(emit.VerdictDrop)
		}
	}
	t.loadEgressPort(asm.R8)
	restore := t.truncateFrame(copied, uncut)
	if t.Captured {
		t.sendToRing(t.Maps.PacketIn, func() { t.Store(asm.R0, 0, asm.R8, 4) }, 4)
		restore()
		end()
		return
	}
	if t.CPUPort != 0 {
		t.Emit(asm.JNE.Imm(asm.R8, int32(t.CPUPort), toPort))
		t.sendToRing(t.Maps.PacketIn, func() {}, 0)
		t.Jump(done)
	}
	t.Bind(toPort)
	if t.Hook == emit.XDP {
		t.sendFromXDP(done)
		t.Bind(done)
		end()
		return
	}
	t.TapFrame(memory.TapOut, t.loadEgressPort)
	if t.Maps.Tap != 0 {
		t.loadEgressPort(asm.R8)
	}
	t.Emit(asm.JGE.Imm(asm.R8, memory.MaxPorts, done), asm.LSh.Imm(asm.R8, 2),
		asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R8, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R8, 0, done))
	if t.Mark != 0 {
		t.StoreConstant(code.Ctx, emit.SKBMark, int32(t.Mark), 4)
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
	// A packet-out runs without a device that could execute a redirect.
	received := t.NewLabel("received")
	t.Load(asm.R1, code.PHV, memory.PHVPort, 4)
	t.Emit(asm.JNE.Imm(asm.R1, int32(t.CPUPort), received))
	clone()
	t.Bind(received)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(done)
	end()
}

// sendFromXDP emits code that sends the frame to the port in R8. The frame leaves through the
// interface on which it arrived, through another interface that accepts frames from XDP, or through
// tc.
func (t *Delivery) sendFromXDP(nowhere string) {
	other, up := t.NewLabel("other"), t.NewLabel("up")
	t.Emit(asm.JGE.Imm(asm.R8, memory.MaxPorts, nowhere), asm.LSh.Imm(asm.R8, 2),
		asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsXDP), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, up))
	if t.Maps.Tap != 0 {
		t.TapFrame(memory.TapOut, t.loadEgressPort)
		t.loadEgressPort(asm.R8)
		t.Emit(asm.LSh.Imm(asm.R8, 2), asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsXDP),
			asm.JGE.Imm(asm.R8, 4*memory.MaxPorts, nowhere), asm.Add.Reg(asm.R1, asm.R8))
		t.Load(asm.R2, asm.R1, 0, 4)
	}
	t.Load(asm.R1, code.Ctx, emit.XDPIfindex, 4)
	t.Emit(asm.JNE.Reg(asm.R1, asm.R2, other), asm.Mov.Imm(asm.R0, emit.XDPTx), asm.Return())
	t.Bind(other)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(up)
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Ports, memory.PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, nowhere))
	t.PassToTC(resumeSend, emit.XDPDrop)
}

func (t *Delivery) loadEgressPort(dst asm.Register) {
	egress := t.Layout.Field(t.Std.EgressPort)
	t.Load(dst, code.PHV, egress.Off, egress.Size)
}

// TapFrame emits code that copies the frame to the tap, if there is one. It uses all registers but
// PHV and Ctx.
func (t *Delivery) TapFrame(direction int32, port func(dst asm.Register)) {
	if t.Maps.Tap == 0 {
		return
	}
	t.sendToRing(t.Maps.Tap, func() {
		port(asm.R1)
		t.Store(asm.R0, 0, asm.R1, 4)
		t.StoreConstant(asm.R0, 4, direction, 4)
		t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
		t.Call(asm.FnKtimeGetBootNs)
		t.Store(code.Entry, 8, asm.R0, 8)
		t.Emit(asm.Mov.Reg(asm.R0, code.Entry))
	}, memory.TapHeader)
}

// sendToRing emits code that puts the frame into a ring from which the process takes packet-ins or
// the tap's frames. The code of first writes `before` bytes in front of the frame, at R0. If the
// ring is full, the frame is lost.
func (t *Delivery) sendToRing(ring int, first func(), before int) {
	no := t.NewLabel("lost")
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, no))
	first()
	t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
	t.Load(code.Temp, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.JEq.Imm(code.Temp, 0, no), asm.JGT.Imm(code.Temp, int32(memory.BufferSize-before), no))
	t.Emit(asm.Mov.Reg(asm.R3, code.Entry), asm.Add.Imm(asm.R3, int32(before)),
		asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.LoadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, no), asm.Add.Imm(code.Temp, int32(before)))
	t.Emit(asm.LoadMapPtr(asm.R1, ring), asm.Mov.Reg(asm.R2, code.Entry),
		asm.Mov.Reg(asm.R3, code.Temp), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnRingbufOutput)
	t.Bind(no)
}
