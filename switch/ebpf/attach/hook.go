package attach

import (
	"fmt"
)

// Hook selects where in the kernel the programs of a switch are attached.
type Hook int

// The values of Hook.
const (
	// HookAuto uses XDP on ports whose driver supports it natively, and tc on all other ports. It
	// uses tc for veth, where tc is as fast and requires nothing of the peer.
	HookAuto Hook = iota
	HookTC        // HookTC uses tc on all ports.
	// HookXDP uses XDP on all ports whose driver supports it natively, including veth, and tc on
	// all other ports.
	HookXDP
	// HookClsact uses tc on all ports, with clsact filters as on kernels before 6.6, even if the
	// kernel has tcx.
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
