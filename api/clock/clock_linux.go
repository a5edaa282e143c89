package clock

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A reading caches the difference between CLOCK_BOOTTIME (Linux 2.6.39) and Go's monotonic clock.
// The cache exists because a read of CLOCK_BOOTTIME takes a system call, which costs as much as a
// packet in the interpreter. The difference is the time for which the machine was suspended, so
// only a suspension changes it. After a suspension, the kernel also moves the wall clock forward in
// one step. Therefore Now reads the difference again from time to time, and whenever the wall clock
// was set.
type reading struct {
	mono   time.Duration // Go's monotonic clock since start, at the time of the reading
	wall   time.Duration // the wall clock minus Go's monotonic clock
	offset time.Duration // CLOCK_BOOTTIME minus Go's monotonic clock
}

const (
	readAgain = 10 * time.Millisecond
	// a smaller change of the difference may only mean that the two clocks were read at different
	// moments
	wallSet = time.Millisecond
	nearly  = 5 * time.Microsecond
)

var (
	start = time.Now()
	last  atomic.Pointer[reading]
)

// Now returns CLOCK_BOOTTIME. The result is exact to a few microseconds.
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

// read makes a new reading. It tries a few times if the two reads of Go's clock are far apart.
func read() Time {
	var r reading
	var low, high time.Duration // bounds of the difference between CLOCK_BOOTTIME and Go's monotonic clock
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
	// The true difference only grows. An earlier reading may have a larger value, because of the
	// time that the reading took. Its value is kept, so that the clock does not go back.
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

// Raw returns CLOCK_MONOTONIC_RAW (Linux 2.6.28). It takes a system call.
func Raw() time.Duration { return clock(clockMonotonicRaw) }

func clock(id uintptr) time.Duration {
	var now syscall.Timespec
	// The system call never blocks, so Go's scheduler need not know about it.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(fmt.Sprintf("clock_gettime(%d): %v: leases are counted by the clocks CLOCK_BOOTTIME and "+
			"CLOCK_MONOTONIC_RAW, which Linux has since 2.6.39; are they filtered (seccomp)?", id, errno))
	}
	return time.Duration(now.Nano())
}
