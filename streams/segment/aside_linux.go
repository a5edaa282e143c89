package segment

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel clears memory when it allocates it, and freeing memory takes as long. One thread with
// low priority allocates and frees the memory of all files, one after another. So a caller that
// continuously creates and drops large files does not occupy the processors that other callers'
// requests need. The order also ensures that memory is freed before more is allocated.

// asidePriority is the nice value of the thread that allocates and frees memory. With it the thread
// gets a third of the processor time of a normal thread.
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

// aside runs a function in the low-priority thread, and returns when the function has finished.
func aside(do func()) {
	done := make(chan struct{})
	later(func() { do(); close(done) })
	<-done
}

// later makes the low-priority thread run a function after those that are already queued.
func later(do func()) {
	started()
	tasks <- do
}
