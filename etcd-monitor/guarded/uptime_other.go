//go:build !linux

package guarded

import "time"

// uptime is the time since the process was started. It may stand still while the machine is suspended: gateways run on Linux, and who reads natively does not use it.
func uptime() time.Duration { return time.Since(begin) }
