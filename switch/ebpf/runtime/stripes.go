package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// SetStripes makes packets lock stripes of registers from now on, or the global lock
// (compile/locking/stripes.go). Only the pipeline's own programs may run during the call and as
// long as stripes are used. The caller must ensure this. The error is [target.ErrUnsupported] if
// these programs do not support stripes.
//
// Packets that use different modes must never use the registers at the same time. So in a period
// between the two modes, all packets take both kinds of locks. This period begins before the last
// packet of the old mode has ended, and ends only after that.
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

var waitForPackets = WaitForPackets // tests replace this function

// StayWithOneLock prevents SetStripes from using stripes until programs are recompiled, because
// some port still runs a program without stripes.
func (p *Pipeline) StayWithOneLock() {
	leave, err := p.enter()
	if err != nil {
		return
	}
	defer leave()
	p.striped = false
}

// Striped reports whether packets lock stripes.
func (p *Pipeline) Striped() bool {
	leave, err := p.enter()
	if err != nil {
		return false
	}
	defer leave()
	return p.State.Load(p.Mode) == memory.ModeStripes
}

// mostWaits is how often packets may find the global lock taken between two calls of
// StripeIfMeeting, half a second apart. With fewer waits, stripes would cost more time than they
// save.
const mostWaits = 1000

// StripeIfMeeting switches to stripes if packets have waited for each other since the last call and
// the programs support stripes. It reports whether it switched.
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
