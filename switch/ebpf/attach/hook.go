package attach

import (
	"fmt"
)

// Hook says where in the kernel the programs of a switch are attached.
type Hook int

// The choices.
const (
	// at XDP on ports whose driver runs it natively, except for veth, where tc is as fast and
	// requires nothing of the peer; otherwise at tc
	HookAuto Hook = iota
	HookTC        // at tc on all ports
	// at XDP on all ports whose driver runs it natively, veth included; otherwise at tc
	HookXDP
	// at tc on all ports, with clsact filters even if the kernel has tcx, as on kernels before 6.6
	HookClsact
)

var hookNames = [...]string{"auto", "tc", "xdp", "clsact"}

// String implements flag.Value.
func (h Hook) String() string { return hookNames[h] }

// Set implements flag.Value.
func (h *Hook) Set(s string) error {
	for i, n := range hookNames {
		if n == s {
			*h = Hook(i)
			return nil
		}
	}
	return fmt.Errorf("the hook is auto, tc, xdp or clsact, not %q", s)
}

// Type implements pflag.Value.
func (*Hook) Type() string { return "auto|tc|xdp|clsact" }
