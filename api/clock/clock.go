// Package clock has the clocks for everything that holds only for a time which another process also
// measures: read leases, a leader's right to act, and how long a gateway may trust what it knows
// without asking.
//
// Whoever may act until a time is over needs a clock that continues while the machine is suspended:
// [Now]. Go's own (time.Since, timers) stands still then, as CLOCK_MONOTONIC does, so that after
// half a day with its lid closed a machine would continue as if nothing had happened. No clock of a
// machine counts the time for which its hypervisor stops it.
//
// A process that waits until another one's time is over needs a clock that does not run too fast:
// [Raw]. All other clocks of a machine are slewed: a program that sets the time makes them run
// faster or slower for a while ([Outlasts]). Raw counts only the processor's or the board's
// oscillator. It stands still while the machine is suspended, so its user waits longer, which is
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
