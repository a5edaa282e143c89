// Package clock has the clocks of everything that holds for a time only because somebody else
// counts that time, too: read leases, a leader's right to act, what a gateway may take for true
// without asking.
//
// Whoever may act until a time is over needs a clock that continues while the machine is suspended:
// [Now]. Go's own (time.Since, timers) stands still then, as CLOCK_MONOTONIC does, so that after
// half a day with its lid closed a machine would continue as if nothing had happened. No clock of a
// machine counts the time for which its hypervisor stops it.
//
// Whoever waits until somebody else's time is over needs a clock that does not run too fast: [Raw].
// All other clocks of a machine are slewed: a program that sets the time has them run faster or
// slower for a while ([Outlasts]). Raw counts the processor's or the board's oscillator and
// nothing else. It stands still while the machine is suspended, so that one waits longer, which is
// safe.
package clock

import "time"

// A Time is a moment on this clock, as the time since some other moment that is the same for all
// processes of the machine.
type Time time.Duration

// Since is how long ago a moment was.
func Since(t Time) time.Duration { return time.Duration(Now() - t) }

// Add is the moment d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }
