// Package futex lets processes sleep and wake each other at words in memory that they share.
package futex

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const opWait, opWake = 0, 1 // the futex operations, without FUTEX_PRIVATE_FLAG

// Wait sleeps while a word has the given value, until another process wakes it or the timeout is
// over. It may also return without a reason. It occupies a thread while it sleeps.
func Wait(word *atomic.Uint32, value uint32, timeout time.Duration) {
	t := syscall.NsecToTimespec(int64(max(timeout, 0)))
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value),
		uintptr(unsafe.Pointer(&t)), 0, 0)
}

// Wake wakes all threads that sleep at a word. It never blocks.
func Wake(word *atomic.Uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, 1<<30, 0, 0, 0)
}
