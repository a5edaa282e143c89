package framefilter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/offload"
)

//go:generate go tool bpf2go -target bpfel frames frames.c -- -mcpu=v3 -Wall -Wextra -Werror

// Name is the program's name. A switch attaches its own program after programs of this name.
const Name = framesProgNetcraqFrames

// ErrUnsupported means that this kernel cannot run the filter.
var ErrUnsupported = errors.New("the kernel shows no program where a frame's checksum is to be finished " +
	"(this needs Linux 6.6 or later, with CONFIG_DEBUG_INFO_BTF)")

// loaded loads the program once. All interfaces share it.
var loaded = sync.OnceValues(func() (*ebpf.Program, error) {
	var objects framesObjects
	err := loadFramesObjects(&objects, nil)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("loading the frame filter: %w", err)
	}
	if err != nil { // the kernel lacks BTF or the function, or permits it only to other program types
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return objects.NetcraqFrames, nil
})

// Supported returns nil if this kernel can run the filter. Otherwise it returns an error that wraps
// ErrUnsupported.
func Supported() error {
	if _, err := loaded(); err != nil {
		return err
	}
	_, err := find(1) // interface 1 is loopback, which every namespace has
	return err
}

// Attach puts the filter onto an interface of the calling thread's network namespace, before all
// tcx programs that are currently attached. If the interface already has the filter, the filter
// stays in its place.
func Attach(ifindex int) error {
	program, err := loaded()
	if err != nil {
		return err
	}
	there, err := find(ifindex)
	if err != nil || len(there) > 0 {
		return err
	}
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: program,
		Attach: ebpf.AttachTCXIngress, Anchor: link.Head()}); err != nil {
		return fmt.Errorf("attaching the frame filter: %w", err)
	}
	return nil
}

// Attached reports whether an interface has the filter.
func Attached(ifindex int) (bool, error) {
	there, err := find(ifindex)
	return len(there) > 0, err
}

// Detach removes the filter from an interface, if it has one.
func Detach(ifindex int) error {
	there, err := find(ifindex)
	if err == nil {
		err = attach.Detach(ifindex, there...)
	}
	if err != nil {
		return fmt.Errorf("taking the frame filter off: %w", err)
	}
	return nil
}

// find returns the IDs of the filter's programs at an interface.
func find(ifindex int) ([]ebpf.ProgramID, error) {
	there, err := attach.Named(ifindex, Name)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return there, err
}

// FinishAtSource makes a pod's own interface, in the calling thread's network namespace, finish
// each frame before it sends it. The interface then computes the checksum and splits segments
// itself. A pod with CAP_NET_ADMIN can undo this.
func FinishAtSource(iface string) error {
	return offload.TurnOff(iface, offload.TxChecksums, offload.TCPSegments, offload.GenericSegment)
}
