package clock

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// CLOCK_BOOTTIME (Linux 2.6.39) takes a system call, which costs as much as a packet in the
// interpreter. Go's own clocks do not. The difference between this clock and Go's monotonic one is
// the time that the machine has been suspended, so it changes only then. When it does, the kernel
// moves the wall clock forward by as much, in the same step. So the difference is cached, and read
// again every now and then, and whenever anybody has set the wall clock.
type reading struct {
	mono   time.Duration // Go's monotonic clock, since start, when it was read
	wall   time.Duration // the wall's clock, less that
	offset time.Duration // this clock, less that
}

const (
	readAgain = 10 * time.Millisecond
	wallSet   = time.Millisecond // a change of less is taken for two clocks that were not read at the same moment
	nearly    = 5 * time.Microsecond
)

var (
	start = time.Now()
	last  atomic.Pointer[reading]
)

// Now is CLOCK_BOOTTIME, to some microseconds.
func Now() Time {
	t := time.Now()
	mono := t.Sub(start)
	if r := last.Load(); r != nil && mono-r.mono < readAgain && (wallLess(t, mono)-r.wall).Abs() < wallSet {
		return Time(mono + r.offset)
	}
	return read()
}

func wallLess(t time.Time, mono time.Duration) time.Duration {
	return time.Duration(t.UnixNano()-start.UnixNano()) - mono
}

// read reads it, a few times where something comes between two looks at Go's clock.
func read() Time {
	var r reading
	var low, high time.Duration // between which the difference is
	for i := range 5 {
		before := time.Now()
		boot := system()
		after := time.Now()
		l, h := boot-after.Sub(start), boot-before.Sub(start)
		if i == 0 || h-l < high-low {
			low, high = l, h
			r = reading{after.Sub(start), wallLess(after, after.Sub(start)), (l + h) / 2}
		}
		if high-low < nearly {
			break
		}
	}
	// The difference only grows. A larger value from an earlier reading includes the time that
	// reading took. It is kept, so that the clock does not go back.
	if old := last.Load(); old != nil && low <= old.offset {
		r.offset = old.offset
	}
	last.Store(&r)
	return Time(time.Since(start) + r.offset)
}

// The standard library has no names for these clocks (linux/time.h).
const (
	clockMonotonicRaw = 4
	clockBoottime     = 7
)

func system() time.Duration { return clock(clockBoottime) }

// Raw is CLOCK_MONOTONIC_RAW (Linux 2.6.28). It takes a system call.
func Raw() time.Duration { return clock(clockMonotonicRaw) }

func clock(id uintptr) time.Duration {
	var now syscall.Timespec
	// It never waits, so the scheduler need not be told.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(fmt.Sprintf("clock_gettime(%d): %v: leases are counted by the clocks CLOCK_BOOTTIME and "+
			"CLOCK_MONOTONIC_RAW, which Linux has since 2.6.39; are they filtered (seccomp)?", id, errno))
	}
	return time.Duration(now.Nano())
}
