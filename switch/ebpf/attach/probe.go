package attach

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Probe reports whether this engine can run here. Its error says what the kernel or the process
// lacks.
var Probe = sync.OnceValue(probe)

func probe() error {
	_ = rlimit.RemoveMemlock() // unnecessary since Linux 5.11
	insns := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: insns,
		License: "GPL"})
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("eBPF needs root, or the capabilities CAP_BPF and CAP_NET_ADMIN: %w", err)
	case err != nil:
		return fmt.Errorf("the kernel does not load eBPF programs: %w", err)
	}
	defer prog.Close()
	for _, h := range []asm.BuiltinFunc{asm.FnLoop, asm.FnRingbufOutput, asm.FnSkbChangeHead,
		asm.FnKtimeGetBootNs} {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, h); err != nil {
			return fmt.Errorf("the kernel is too old for the helper %v "+
				"(Linux 5.17 has all that are used): %w", h, err)
		}
	}
	return nil
}

// HasTCX reports whether the kernel has the hook tcx (Linux 6.6). It queries the loopback interface
// and changes nothing.
var HasTCX = sync.OnceValue(func() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err == nil
})
