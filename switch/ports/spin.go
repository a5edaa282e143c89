package ports

import (
	"time"

	"golang.org/x/sys/unix"
)

// spinner decides whether an idle packet thread polls again or sleeps.
//
// Waking a sleeping thread costs more time than switching a frame. So under a steady request-reply
// load it is better to poll a little longer. On a machine with few cores, however, polling takes
// processor time from the programs whose frames the thread waits for. So the polling time adapts.
// It doubles when a frame arrived during polling or soon after the thread fell asleep. It halves
// when polling was unsuccessful, so a quiet switch sleeps at once. Each poll yields the processor.
type spinner struct {
	max    time.Duration // upper bound of budget; negative if the thread must not poll
	budget time.Duration // how long to poll before sleeping
	since  time.Time     // when polling began; zero while the thread does not poll
}

// spinMin is the shortest useful polling time: about the cost of waking up.
const spinMin = 4 * time.Microsecond

// worked records that the thread had work.
func (s *spinner) worked() {
	if !s.since.IsZero() {
		s.grow()
		s.since = time.Time{}
	}
}

// again reports whether to poll once more. If so, it has yielded the processor.
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

// slept records how long the thread slept. If that was less than max, polling would have been
// better.
func (s *spinner) slept(d time.Duration) {
	if d < s.max {
		s.grow()
	}
}

func (s *spinner) grow() {
	s.budget = min(max(2*s.budget, spinMin), s.max)
}
