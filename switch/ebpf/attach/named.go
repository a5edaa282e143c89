package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// SwitchProgram is the name under which a switch's program is attached.
const SwitchProgram = "netcraq"

// Named does what NamedAt does, for ingress.
func Named(ifindex int, names ...string) ([]ebpf.ProgramID, error) {
	return NamedAt(ebpf.AttachTCXIngress, ifindex, names...)
}

// NamedAt returns the programs with the given names at tcx of an interface in the calling thread's
// network namespace, in execution order. at is AttachTCXIngress or AttachTCXEgress. The error wraps
// ebpf.ErrNotSupported if the kernel has no tcx (before Linux
// 6.6).
func NamedAt(at ebpf.AttachType, ifindex int, names ...string) (out []ebpf.ProgramID, err error) {
	q, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
	if err != nil {
		if errors.Is(err, unix.EINVAL) { // kernels without tcx return this error
			err = ebpf.ErrNotSupported
		}
		return nil, fmt.Errorf("looking at the programs of interface %d: %w", ifindex, err)
	}
	for _, a := range q.Programs {
		p, err := ebpf.NewProgramFromID(a.ID)
		if errors.Is(err, unix.ENOENT) { // the program was detached meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the programs of interface %d: %w", ifindex, err)
		}
		info, err := p.Info()
		p.Close()
		if err == nil && slices.Contains(names, info.Name) {
			out = append(out, a.ID)
		}
	}
	return out, nil
}

// Detach does what DetachAt does, for ingress.
func Detach(ifindex int, programs ...ebpf.ProgramID) error {
	return DetachAt(ebpf.AttachTCXIngress, ifindex, programs...)
}

// DetachAt detaches programs from tcx of an interface, except programs that a link holds.
func DetachAt(at ebpf.AttachType, ifindex int, programs ...ebpf.ProgramID) error {
	for _, id := range programs {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: ifindex, Program: p,
				Attach: at})
			p.Close()
		}
		if err != nil {
			return fmt.Errorf("taking a program off interface %d: %w", ifindex, err)
		}
	}
	return nil
}
