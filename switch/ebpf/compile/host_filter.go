package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/udpmatch"
)

// A switch with Options.OnlyUDP shares its interfaces with the host: the program gets packets to or
// from that UDP port, and everything else continues as if there were no switch.
//
//	               ┌ to or from the UDP port, untagged, whole, without options ─▶ the program
//	frame ─▶ IPv4? ┤ to or from it, but tagged, a first fragment or with options ─▶ dropped
//	               └ all else ─▶ the next program at the hook, and the host's stack
//
// The middle line is for safety. The program would not recognize such a packet as its own and might
// route it unseen. The host would remove the tags and route the packet, or deliver it to a socket
// that waits for an answer from that port. Package udpmatch lists the encapsulations that the
// filter looks into.

// hostFilterStack is the stack offset below which the host filter keeps its bytes.
const hostFilterStack = delivery.SlotOnStack

// hostFilter emits the code in front of the program that passes on frames that do not belong to the
// program. It skips frames that the program itself sent here. It uses all registers but Ctx.
func (t *translator) hostFilter() {
	if t.OnlyUDP == 0 {
		return
	}
	ours := t.NewLabel("host.ours")
	if t.CPUPort != 0 && t.Hook == emit.TC {
		t.Load(asm.R1, code.Ctx, emit.SKBIfindex, 4)
		// a packet-out always belongs to the program
		t.Emit(asm.JEq.Imm(asm.R1, memory.Loopback, ours))
	}
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	t.Emit(udpmatch.Rules{Both: t.OnlyUDP}.Arguments()...)
	t.Inline(udpmatch.Function(t.Hook == emit.XDP), hostFilterStack)
	t.Emit(asm.JEq.Imm(asm.R0, udpmatch.Drop, "ingress.drop"),
		asm.JEq.Imm(asm.R0, udpmatch.Plain, ours))
	if t.Hook == emit.TC {
		t.Emit(asm.Mov.Imm(asm.R0, emit.TCXNext), asm.Return())
	} else {
		t.Emit(asm.Mov.Imm(asm.R0, emit.XDPPass), asm.Return())
	}
	t.Bind(ours)
}
