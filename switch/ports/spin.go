package ports

import (
	"time"

	"golang.org/x/sys/unix"
)

// spinner decides whether an idle packet thread looks again or sleeps.
//
// Waking a sleeping thread costs more than switching a frame does, so under a steady request-reply
// load it pays to look a little longer. On a machine with few cores it also takes them from the
// programs whose frames one is waiting for. So the time spent looking adapts: it doubles when a
// frame came while looking or soon after falling asleep, and halves when looking was without
// success; a quiet switch sleeps at once. Each look gives the processor away to whoever wants it.
type spinner struct {
	max    time.Duration // upper bound of budget; negative: never
	budget time.Duration // how long to look before sleeping
	since  time.Time     // start of the present look; zero when there is none
}

// spinMin is the shortest look worth taking: about what waking up costs.
const spinMin = 4 * time.Microsecond

// worked notes that there was something to do.
func (s *spinner) worked() {
	if !s.since.IsZero() {
		s.grow()
		s.since = time.Time{}
	}
}

// again reports whether to look once more; it has yielded the processor if so.
func (s *spinner) again() bool {
	if s.budget < spinMin {
		return false
	}
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	} else if now.Sub(s.since) > s.budget {
		s.budget /= 2
		s.since = time.Time{}
		return false
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return true
}

// slept notes how long the thread slept: had it been less than it may spin, spinning would have
// been better.
func (s *spinner) slept(d time.Duration) {
	if d < s.max {
		s.grow()
	}
}

func (s *spinner) grow() {
	s.budget = min(max(2*s.budget, spinMin), s.max)
}
