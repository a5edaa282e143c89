// Package clock provides the clocks for periods that two processes measure. Examples are read
// leases, a leader's right to act, and the time for which a gateway may rely on its last answer
// from etcd.
//
// A process that may act until a period ends needs a clock that continues while the machine is
// suspended. [Now] is such a clock. Go's own clock (time.Since, timers) stops during a suspension,
// as CLOCK_MONOTONIC does. With it, a laptop whose lid was closed for half a day would continue as
// if no time had passed. No clock of a virtual machine counts the time for which its hypervisor
// stops it.
//
// A process that waits until another process's period ends needs a clock that does not run too
// fast. [Raw] is such a clock. All other clocks of a machine can be slewed: a program that sets the
// time makes them run faster or slower for a while (see [Outlasts]). Raw follows only the
// oscillator of the processor or the board. It stops while the machine is suspended. Then the
// process waits longer than necessary, which is safe.
package clock

import "time"

// A Time is a moment on the clock of Now. It counts from a moment that is the same for all
// processes of the machine.
type Time time.Duration

// Since returns the time that has passed since t.
func Since(t Time) time.Duration { return time.Duration(Now() - t) }

// Add returns the moment d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }
