package kernelload

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Reflect makes an interface send every UDP packet back with its addresses swapped: the least that
// a switch can do, at tc or natively at XDP, and so the limit of what can be measured with a load.
// The other end of a veth pair must be named for XDP: it needs a program of its own to take frames
// from there.
func Reflect(iface string, xdp bool, peer string) (detach func(), err error) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", iface, err)
	}
	kind := ebpf.SchedCLS
	if xdp {
		kind = ebpf.XDP
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "reflector", Type: kind,
		Instructions: reflector(xdp), License: "GPL"})
	if err != nil {
		return nil, fmt.Errorf("loading the reflector: %w", err)
	}
	defer prog.Close()
	if !xdp {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifi.Index, Program: prog,
			Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return nil, fmt.Errorf("attaching the reflector to %s: %w", iface, err)
		}
		return func() { l.Close() }, nil
	}
	other, err := net.InterfaceByName(peer)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", peer, err)
	}
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "pass", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		return nil, fmt.Errorf("loading the program of the reflector's peer: %w", err)
	}
	defer pass.Close()
	b, err := link.AttachXDP(link.XDPOptions{Interface: other.Index, Program: pass,
		Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attaching a program to %s: %w", peer, err)
	}
	a, err := link.AttachXDP(link.XDPOptions{Interface: ifi.Index, Program: prog,
		Flags: link.XDPDriverMode})
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("attaching the reflector to %s: %w", iface, err)
	}
	return func() { a.Close(); b.Close() }, nil
}
