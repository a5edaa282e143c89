package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The oldest supported kernel versions (docs/switch.md).
const (
	oldestEBPF = 5<<8 | 18
	oldestTCX  = 6<<8 | 6
)

// probes test the kernel's features. Tests replace them.
type probes struct {
	load   func() error // loads an empty program for tc
	helper func(asm.BuiltinFunc) error
	ring   func() error
	tcx    func() error
	clock  func() (status int32, worst time.Duration, err error)
}

// helpers are the eBPF helpers that the switch's programs call and that old kernels lack
// (switch/ebpf/attach).
var helpers = []asm.BuiltinFunc{asm.FnLoop, asm.FnRingbufOutput, asm.FnSkbChangeHead, asm.FnKtimeGetBootNs}

var kernelProbes = probes{
	load: func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		if err == nil {
			err = p.Close()
		}
		return err
	},
	helper: func(h asm.BuiltinFunc) error { return features.HaveProgramHelper(ebpf.SchedCLS, h) },
	ring:   func() error { return features.HaveMapType(ebpf.RingBuf) },
	tcx: func() error { // the query of loopback's programs changes nothing
		_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
		return err
	},
	clock: adjtimex,
}

const interpAdvice = "have the switch run its program in a process, which is slower (--engine interp), or update the kernel to 5.18 or newer"

func kernel(_ context.Context, l *look) {
	release, version := l.kernelVersion()
	switch {
	case version == 0:
		l.unseen("version", "reading it", errors.New(release))
	case version < oldestEBPF:
		l.problem("version", interpAdvice, "Linux %s: the switch needs 5.18 or newer in the kernel", release)
	case version < oldestTCX:
		l.note("version", "Linux %s: programs are attached by clsact, as tcx came with 6.6", release)
	default:
		l.ok("version", "Linux %s", release)
	}
	l.programs()
	l.jit()
	if _, err := os.Stat(l.path("/sys/kernel/btf/vmlinux")); err == nil {
		l.ok("BTF", "the kernel describes its types (/sys/kernel/btf/vmlinux)")
	} else if errors.Is(err, os.ErrNotExist) {
		l.note("BTF", "the kernel has no description of its types (/sys/kernel/btf/vmlinux): NetCRAQ does without, bpftool and others show less")
	} else {
		l.unseen("BTF", "looking for it", err)
	}
	if mode := chosen(readFile(l.path("/sys/kernel/security/lockdown"))); mode == "confidentiality" {
		l.problem("lockdown", "start the kernel with lockdown=integrity, or none",
			"the kernel is locked down for confidentiality, and refuses helpers that eBPF programs need")
	}
}

// programs checks the kernel features that the switch's programs need.
func (l *look) programs() {
	switch err := l.probes.load(); {
	case denied(err):
		l.unseen("eBPF", "loading a program", err)
		return
	case err != nil:
		l.problem("eBPF", interpAdvice+" (CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_BPF)", "the kernel does not load programs for tc: %v", err)
		return
	}
	l.ok("eBPF", "the kernel loads programs for tc")
	var lacking []string
	for _, h := range helpers {
		if err := l.probes.helper(h); errors.Is(err, ebpf.ErrNotSupported) {
			lacking = append(lacking, h.String())
		} else if err != nil {
			l.unseen("helpers", "asking for "+h.String(), err)
		}
	}
	if err := l.probes.ring(); errors.Is(err, ebpf.ErrNotSupported) {
		lacking = append(lacking, "ring buffers")
	}
	if len(lacking) > 0 {
		l.problem("helpers", interpAdvice, "the kernel lacks what the switch's programs call: %s", strings.Join(lacking, ", "))
	} else {
		l.ok("helpers", "the kernel has all that the switch's programs call")
	}
	switch err := l.probes.tcx(); {
	case err == nil:
		l.ok("tcx", "programs share an interface in a known order (tcx)")
	case denied(err):
		l.unseen("tcx", "asking for it", err)
	default:
		l.note("tcx", "there is no tcx (Linux 6.6): programs are attached by clsact, which another plugin that makes it anew takes away")
	}
}

// jit checks the kernel's eBPF JIT compiler.
func (l *look) jit() {
	switch read(l.proc("sys/net/core/bpf_jit_enable")) {
	case "0":
		l.warn("compiler", "sysctl -w net.core.bpf_jit_enable=1", "the kernel interprets eBPF (net.core.bpf_jit_enable is 0): each packet takes several times as long")
	case "2":
		l.warn("compiler", "sysctl -w net.core.bpf_jit_enable=1", "the kernel logs all that it compiles (net.core.bpf_jit_enable is 2)")
	}
	if read(l.proc("sys/net/core/bpf_jit_harden")) == "2" {
		l.note("compiler", "constants in programs are blinded for everybody (net.core.bpf_jit_harden is 2): programs are larger and slower; 1 does it for others than root")
	}
}

// kernelVersion returns the kernel's release, and major<<8 | minor. If the number is 0, the string
// is an error text.
func (l *look) kernelVersion() (string, int) {
	release := read(l.proc("sys/kernel/osrelease"))
	if release == "" {
		var u unix.Utsname
		if unix.Uname(&u) == nil && l.Proc == "/proc" {
			release = unix.ByteSliceToString(u.Release[:])
		}
	}
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return fmt.Sprintf("%q is not a version", release), 0
	}
	return release, major<<8 | minor
}

// read returns the trimmed content of a small file, or "" if it is missing or unreadable.
func read(path string) string { return strings.TrimSpace(readFile(path)) }

func readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// number parses a small file with a number.
func number(path string) (int, bool) {
	n, err := strconv.Atoi(read(path))
	return n, err == nil
}

// chosen returns the word in brackets. The kernel puts the selected value in brackets.
func chosen(s string) string {
	_, after, _ := strings.Cut(s, "[")
	word, _, _ := strings.Cut(after, "]")
	return word
}
