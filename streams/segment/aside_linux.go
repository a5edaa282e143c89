package segment

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel clears memory when it allocates it, and takes as long to free it. One thread with low
// priority does both for all files, one after another. So a caller that continuously creates and
// drops large files does not take the processors that requests of others need. And memory is freed
// before more is requested.

// asidePriority is the thread's nice value. It gets a third of the processor time of another
// thread.
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

// aside runs a function in that thread, and returns when it has finished.
func aside(do func()) {
	done := make(chan struct{})
	later(func() { do(); close(done) })
	<-done
}

// later makes that thread run a function after the functions that it already has.
func later(do func()) {
	started()
	tasks <- do
}
