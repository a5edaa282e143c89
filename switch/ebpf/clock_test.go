package ebpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/internal/boottime"
)

// TestWallClock: the wall's times are right, differ as the kernel's do, and follow a clock that was set.
func TestWallClock(t *testing.T) {
	var w wallClock
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		w.zero = w.zero.Add(set) // as if the wall's clock had been set back, and forth
		now := int64(boottime.Now())
		first := w.at(now)
		if off := time.Since(first); off < 0 || off > time.Second {
			t.Errorf("%v: off by %v", set, off)
		}
		for range 1000 {
			if second := w.at(now + 1); second.Sub(first) != 1 {
				t.Fatalf("a nanosecond later is %v later", second.Sub(first))
			}
		}
	}
}

// TestProgramsReadBoottime: nothing that a program counts stands still while the machine is suspended, neither leases (its time stamps) nor meters.
func TestProgramsReadBoottime(t *testing.T) {
	d, err := newDevice(Options{CPUPort: 510, Tap: func(time.Time, uint32, bool, []byte) {}})
	check(t, err)
	t.Cleanup(func() { d.Close() })
	check(t, d.Commit(netcraq(t, 128)))
	for _, h := range []hook{hookTC, hookXDP} {
		insns, err := translate(d.pipeline.plan, h, d.pipeline.fds, d.settings)
		check(t, err)
		boot := 0
		for _, in := range insns {
			if !in.IsBuiltinCall() {
				continue
			}
			switch asm.BuiltinFunc(in.Constant) {
			case asm.FnKtimeGetBootNs:
				boot++
			case asm.FnKtimeGetNs, asm.FnKtimeGetCoarseNs, asm.FnJiffies64, asm.FnKtimeGetTaiNs:
				t.Errorf("%v: a program calls %v", h, asm.BuiltinFunc(in.Constant))
			}
		}
		if boot == 0 {
			t.Errorf("%v: the program reads no clock", h)
		}
	}
}
