// Package futex sleeps and wakes at words in memory that processes share.
package futex

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const opWait, opWake = 0, 1 // the operations without FUTEX_PRIVATE_FLAG

// Wait sleeps while a word has a value, until it is woken or the time is over. It may return
// without a reason. It occupies a thread meanwhile.
func Wait(word *atomic.Uint32, value uint32, timeout time.Duration) {
	t := syscall.NsecToTimespec(int64(max(timeout, 0)))
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value),
		uintptr(unsafe.Pointer(&t)), 0, 0)
}

// Wake wakes all threads that sleep at a word. It never blocks.
func Wake(word *atomic.Uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, 1<<30, 0, 0, 0)
}
