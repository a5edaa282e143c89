package kernelload

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Reflect makes an interface send every UDP packet back with swapped addresses, at tc or natively
// at XDP. This is the minimum work of a switch, and so the limit of what a load can measure. For
// XDP, peer must name the other end of a veth pair, which needs its own program to accept frames
// from XDP.
func Reflect(iface string, xdp bool, peer string) (detach func(), err error) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", iface, err)
	}
	prog, err := Reflector(xdp)
	if err != nil {
		return nil, err
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
	pass, err := program(kernelProgPass)
	if err != nil {
		return nil, err
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

// Reflector returns the program that Reflect attaches.
func Reflector(xdp bool) (*ebpf.Program, error) {
	if xdp {
		return program(kernelProgReflectXdp)
	}
	return program(kernelProgReflectTc)
}

// program loads one of kernel.c's programs that use no data.
func program(name string) (*ebpf.Program, error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("the program %s: %w", name, err)
	}
	prog, err := ebpf.NewProgram(spec.Programs[name])
	if err != nil {
		return nil, fmt.Errorf("loading the program %s: %w", name, err)
	}
	return prog, nil
}
