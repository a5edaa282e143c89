package delivery

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// LoadPacketOut emits code that replaces a frame from the CPU port by the frame that PacketOut put
// into the map. The port is in R3. The code uses all registers but PHV and Ctx.
func (t *Delivery) LoadPacketOut(drop string) {
	if t.CPUPort == 0 {
		return
	}
	usual := t.NewLabel("usual")
	t.Emit(asm.JNE.Imm(asm.R3, int32(t.CPUPort), usual),
		asm.LoadMapValue(asm.R1, t.Maps.PacketOut, 0))
	t.Load(code.Temp, asm.R1, memory.PacketOutLength, 8)
	t.Emit(asm.JEq.Imm(code.Temp, 0, usual), asm.JGT.Imm(code.Temp, memory.PacketOutMax, drop))
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeTail)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.LoadMapValue(asm.R3, t.Maps.PacketOut, memory.PacketOutFrame),
		asm.Mov.Reg(asm.R4, code.Temp))
	t.StoreBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(usual)
}
