package ebpf

import "github.com/cilium/ebpf/asm"

// A switch with Options.OnlyUDP shares its interfaces with the host: the program gets what is to or from that UDP port, and everything else goes on its way as if there were
// no switch.
//
//	                   to or from the UDP port, whole, without options ──▶ the program
//	frame ──▶ IPv4? ──┤ to or from it, a first fragment or with options ──▶ dropped
//	                   all else ─────────────────────────────────────────▶ the next program at the hook, and the host's stack
//
// The middle line is for safety: the program would not know such a packet for one of its own and could route it unseen, and the host would deliver it to whoever waits for
// an answer from that port. Later fragments carry no ports and are nothing without the first.

// Places on the stack: the bytes 12 to 25 of the frame (Ethernet type, and the IPv4 header up to its protocol), and the two ports.
const (
	sharedHeader = -64
	sharedPorts  = -40
)

// hostFilter lets frames go on that are not the program's. It is what the program begins with, but for frames that the program itself has sent here. It uses all registers but
// rCtx.
func (t *translator) hostFilter() {
	if t.onlyUDP == 0 {
		return
	}
	const (
		etherType = sharedHeader
		version   = sharedHeader + 2 // and the header's length, in words
		fragment  = sharedHeader + 8 // flags and offset
		protocol  = sharedHeader + 11

		moreFragments  = 0x2000
		fragmentOffset = 0x1fff
	)
	pass, named, ours := t.newLabel("shared.pass"), t.newLabel("shared.named"), t.newLabel("shared.ours")
	if t.cpuPort != 0 && t.hook == hookTC {
		t.load(asm.R1, rCtx, skbIfindex, 4)
		t.emit(asm.JEq.Imm(asm.R1, loopback, ours)) // a packet-out
	}
	if t.hook == hookTC {
		t.load(asm.R1, rCtx, skbVLANPresent, 4)
		t.emit(asm.JNE.Imm(asm.R1, 0, pass)) // the tag is beside the frame
	}
	t.emit(asm.Mov.Imm(asm.R2, 12), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, sharedHeader), asm.Mov.Imm(asm.R4, 12))
	t.loadBytes()
	t.emit(asm.JNE.Imm(asm.R0, 0, pass))
	t.load(asm.R1, asm.R10, etherType, 2)
	t.emit(asm.HostTo(asm.BE, asm.R1, asm.Half), asm.JNE.Imm(asm.R1, 0x0800, pass))
	t.load(asm.R1, asm.R10, protocol, 1)
	t.emit(asm.JNE.Imm(asm.R1, 17, pass))
	t.load(asm.R1, asm.R10, fragment, 2)
	t.emit(asm.HostTo(asm.BE, asm.R1, asm.Half), asm.And.Imm(asm.R1, fragmentOffset), asm.JNE.Imm(asm.R1, 0, pass))
	t.load(asm.R2, asm.R10, version, 1)
	t.emit(asm.Mov.Reg(asm.R1, asm.R2), asm.RSh.Imm(asm.R1, 4), asm.JNE.Imm(asm.R1, 4, pass))
	t.emit(asm.And.Imm(asm.R2, 15), asm.LSh.Imm(asm.R2, 2), asm.Add.Imm(asm.R2, 14))
	t.emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, sharedPorts), asm.Mov.Imm(asm.R4, 4))
	t.loadBytes()
	t.emit(asm.JNE.Imm(asm.R0, 0, pass))
	for _, port := range []int{sharedPorts, sharedPorts + 2} {
		t.load(asm.R1, asm.R10, port, 2)
		t.emit(asm.HostTo(asm.BE, asm.R1, asm.Half), asm.JEq.Imm(asm.R1, int32(t.onlyUDP), named))
	}
	t.place(pass)
	if t.hook == hookTC {
		t.emit(asm.Mov.Imm(asm.R0, tcxNext), asm.Return())
	} else {
		t.emit(asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	}
	t.place(named)
	t.load(asm.R1, asm.R10, version, 1)
	t.emit(asm.JNE.Imm(asm.R1, 0x45, "ingress.drop"))
	t.load(asm.R1, asm.R10, fragment, 2)
	t.emit(asm.HostTo(asm.BE, asm.R1, asm.Half), asm.And.Imm(asm.R1, moreFragments), asm.JNE.Imm(asm.R1, 0, "ingress.drop"))
	t.place(ours)
}
