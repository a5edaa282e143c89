//go:build !linux

package clock

import "time"

var start = time.Now()

// Now is Go's monotonic clock, if no better one is known: only clients and tools run elsewhere than
// on Linux.
func Now() Time { return Time(time.Since(start)) }

// Raw is Go's monotonic clock, too.
func Raw() time.Duration { return time.Since(start) }
