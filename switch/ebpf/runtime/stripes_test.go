package runtime

import (
	"errors"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// TestSetStripes checks that there is a period with both kinds of locks between the global lock and
// stripes, in both directions. Each change of mode must wait for packets that may not have seen it,
// before the next change.
func TestSetStripes(t *testing.T) {
	state, err := NewState(4096)
	if err != nil {
		t.Skipf("BPF maps are not available: %v", err)
	}
	defer state.Close()
	p := &Pipeline{Plan: &memory.Plan{Mode: 64, Stripes: 128}, State: state}
	if err := p.SetStripes(true); !errors.Is(err, target.ErrUnsupported) {
		t.Errorf("stripes for a program that knows none: %v", err)
	}
	p.striped = true
	var waited []uint64
	waitForPackets = func() { waited = append(waited, state.Load(p.Mode)) }
	defer func() { waitForPackets = WaitForPackets }()
	for _, c := range []struct {
		on    bool
		modes []uint64
	}{
		{false, nil},
		{true, []uint64{memory.ModeBoth, memory.ModeStripes}},
		{true, nil},
		{false, []uint64{memory.ModeBoth, memory.ModeOne}},
	} {
		waited = nil
		if err := p.SetStripes(c.on); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(waited, c.modes) {
			t.Errorf("stripes %v: waited in modes %v, not %v", c.on, waited, c.modes)
		}
	}
	p.StayWithOneLock()
	if err := p.SetStripes(true); !errors.Is(err, target.ErrUnsupported) {
		t.Errorf("stripes where some port has a program that knows none: %v", err)
	}
}
