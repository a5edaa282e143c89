package segment

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel clears memory when it gives it, and takes as long again when it gets it back. One
// thread of low priority does both for all files, one after the other. So a caller who makes and
// throws away large files all the time does not take the processors that others' requests need. And
// memory that was given back is free before more is asked for.

// asidePriority is the thread's nice value: it gets a third of what another thread gets.
const asidePriority = 5

var (
	tasks   = make(chan func(), 256)
	started = sync.OnceFunc(func() {
		go func() {
			runtime.LockOSThread()
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), asidePriority)
			for do := range tasks {
				do()
			}
		}()
	})
)

// aside runs a function in that thread, and returns when it has run.
func aside(do func()) {
	done := make(chan struct{})
	later(func() { do(); close(done) })
	<-done
}

// later has that thread run a function after those that it has been given before.
func later(do func()) {
	started()
	tasks <- do
}
