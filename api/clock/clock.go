// Package clock has the clocks for everything that is valid only for a time that another process
// also measures: read leases, a leader's right to act, and the time for which a gateway may rely on
// its last answer from etcd.
//
// A process that may act until a time is over needs a clock that continues while the machine is
// suspended: [Now]. Go's own clock (time.Since, timers) stops then, as CLOCK_MONOTONIC does. A
// laptop whose lid was closed for half a day would continue as if no time had passed. No clock of a
// machine counts the time for which its hypervisor stops it.
//
// A process that waits until another one's time is over needs a clock that does not run too fast:
// [Raw]. All other clocks of a machine are slewed: a program that sets the time makes them run
// faster or slower for a while ([Outlasts]). Raw counts only the processor's or the board's
// oscillator. It stands still while the machine is suspended, so its user waits longer, which is
// safe.
package clock

import "time"

// A Time is a moment on this clock: the time since a moment that is the same for all processes of
// the machine.
type Time time.Duration

// Since returns the time that has passed since a moment.
func Since(t Time) time.Duration { return time.Duration(Now() - t) }

// Add returns the moment d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }
