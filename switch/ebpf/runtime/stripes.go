package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// SetStripes makes packets take stripes of registers from now on, or the one lock
// (compile/locking/stripes.go). The caller must ensure that only the pipeline's own programs run
// during the call, and as long as stripes are used. The error is [target.ErrUnsupported] if these
// programs do not support stripes.
//
// Packets that use different modes must never use the registers at the same time. So between the
// two modes there is a time in which all packets take both kinds of locks: it begins when the last
// packet of the old mode has ended, and ends before the first packet of the new mode begins.
func (p *Pipeline) SetStripes(on bool) error {
	modes := []uint64{memory.ModeBoth, memory.ModeOne}
	if on {
		modes[1] = memory.ModeStripes
	}
	for _, mode := range modes {
		leave, err := p.enter()
		if err != nil {
			return err
		}
		if on && !p.striped {
			err = fmt.Errorf("the program takes all registers at once: %w", target.ErrUnsupported)
		}
		done := p.Stripes == 0 || p.State.Load(p.Mode) == modes[1]
		if err == nil && !done {
			p.State.Store(p.Mode, mode)
		}
		leave()
		if err != nil || done {
			return err
		}
		waitForPackets() // this may take tens of milliseconds
	}
	return nil
}

var waitForPackets = WaitForPackets // replaced in tests

// StayWithOneLock keeps SetStripes from using stripes until programs are recompiled: some port
// still runs a program without stripes.
func (p *Pipeline) StayWithOneLock() {
	leave, err := p.enter()
	if err != nil {
		return
	}
	defer leave()
	p.striped = false
}

// Striped reports whether packets take stripes.
func (p *Pipeline) Striped() bool {
	leave, err := p.enter()
	if err != nil {
		return false
	}
	defer leave()
	return p.State.Load(p.Mode) == memory.ModeStripes
}

// mostWaits is how often packets may find the one lock taken between two calls of StripeIfMeeting,
// half a second apart. With fewer waits, stripes would cost more than they save.
const mostWaits = 1000

// StripeIfMeeting sets stripes if packets have waited for each other since it was last called and
// the programs support stripes; it reports whether it did.
func (p *Pipeline) StripeIfMeeting() (bool, error) {
	leave, err := p.enter()
	if err != nil {
		return false, nil
	}
	if p.Stripes == 0 {
		leave()
		return false, nil
	}
	now := p.State.Load(p.Contended)
	meeting := now-p.waits > mostWaits && p.striped && p.State.Load(p.Mode) == memory.ModeOne
	p.waits = now
	leave()
	if !meeting {
		return false, nil
	}
	return true, p.SetStripes(true)
}
