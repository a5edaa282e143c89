//go:build !linux

package clock

import "time"

var start = time.Now()

// Now returns Go's monotonic clock. On systems other than Linux only clients and tools run.
func Now() Time { return Time(time.Since(start)) }

// Raw returns Go's monotonic clock, too.
func Raw() time.Duration { return time.Since(start) }
