package ingressfilter

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// This file has the filter program of the previous version. Tests use it to show which packets it
// let through, and that Attach replaces it.

// attachFormer attaches the filter as the previous version did.
func attachFormer(t *testing.T, ifindex int, r Rules) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: formerName, Type: ebpf.SchedCLS,
		License: "Apache-2.0", Instructions: r.former()})
	check(t, err)
	defer prog.Close()
	if withoutTCX {
		check(t, incoming.attachFilterNamed(ifindex, prog, formerName))
		return
	}
	check(t, link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: prog,
		Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()}))
}

// former returns the previous version's program. Register R6 has the context.
func (r Rules) former() asm.Instructions {
	// positions on the stack: bytes 12 to 24 of the frame, and the UDP ports
	const header, ports = -16, -24
	load := func(offset asm.Instruction, to int16, n int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), offset, asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, int32(to)), asm.Mov.Imm(asm.R4, n),
			asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "next"),
		}
	}
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	insns = append(insns, load(asm.Mov.Imm(asm.R2, 12), header, 12)...)
	insns = append(insns,
		asm.LoadMem(asm.R1, asm.R10, header, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, unix.ETH_P_IP, "next"),
		asm.LoadMem(asm.R1, asm.R10, header+11, asm.Byte),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_UDP, "next"),
		asm.LoadMem(asm.R1, asm.R10, header+8, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.And.Imm(asm.R1, 0x1fff), asm.JNE.Imm(asm.R1, 0, "next"),
		// R7 becomes the position at which the UDP header begins.
		asm.LoadMem(asm.R7, asm.R10, header+2, asm.Byte), asm.And.Imm(asm.R7, 15),
		asm.LSh.Imm(asm.R7, 2), asm.Add.Imm(asm.R7, 14),
	)
	insns = append(insns, load(asm.Mov.Reg(asm.R2, asm.R7), ports, 4)...)
	insns = append(insns, asm.LoadMem(asm.R1, asm.R10, ports, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.LoadMem(asm.R2, asm.R10, ports+2, asm.Half), asm.HostTo(asm.BE, asm.R2, asm.Half))
	return append(insns,
		asm.JEq.Imm(asm.R1, int32(r.Port), "drop"), asm.JEq.Imm(asm.R2, int32(r.Port), "drop"),
		asm.JEq.Imm(asm.R2, int32(r.Destination), "drop"),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return())
}
