//go:build !linux

package clock

import "time"

var start = time.Now()

// Now returns Go's monotonic clock, because only clients and tools run on systems other than Linux.
func Now() Time { return Time(time.Since(start)) }

// Raw returns Go's monotonic clock, too.
func Raw() time.Duration { return time.Since(start) }
