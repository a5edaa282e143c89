package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// A packet-out is run through the program at tc by BPF_PROG_TEST_RUN, which takes frames of 15 to
// about 3,700 bytes: what fits in a page. So the frame lies in a map, and the program makes the
// frame that it is run on as long, and copies it there.
const (
	PacketOutLength = 0 // 8 bytes; 0: there is none
	PacketOutFrame  = 8
	PacketOutMax    = 16000 // what the kernel lets a frame grow to at tc, less a little
	PacketOutSize   = PacketOutFrame + PacketOutMax
	PacketOutLeast  = 14 // an Ethernet header
)

// loadPacketOut makes the frame, where it has come by the CPU port, the one that PacketOut has put
// into the map. The port is in R3. It uses all registers but PHV and Ctx.
func (t *translator) loadPacketOut(drop string) {
	if t.CPUPort == 0 {
		return
	}
	usual := t.NewLabel("usual")
	t.Emit(asm.JNE.Imm(asm.R3, int32(t.CPUPort), usual),
		asm.LoadMapValue(asm.R1, t.maps.PacketOut, 0))
	t.Load(code.Temp, asm.R1, PacketOutLength, 8)
	t.Emit(asm.JEq.Imm(code.Temp, 0, usual), asm.JGT.Imm(code.Temp, PacketOutMax, drop))
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeTail)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.LoadMapValue(asm.R3, t.maps.PacketOut, PacketOutFrame),
		asm.Mov.Reg(asm.R4, code.Temp))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(usual)
}
