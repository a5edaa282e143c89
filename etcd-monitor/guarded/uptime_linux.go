package guarded

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since the machine was started, with that in which it was suspended: what etcd has said does not hold for longer because this machine slept.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it
	}
	return time.Duration(t.Nano())
}
