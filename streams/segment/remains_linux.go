package segment

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Remains is a memfd that this process no longer uses, but other programs may. The kernel frees its
// memory when no other program has it open or mapped.
type Remains struct {
	file *os.File
	own  bool // whether file has an open file description that no caller ever got
}

// Freed reports whether no other program uses the memory any longer. If so, it also closes the
// file. A nil Remains counts as freed.
//
// Freed requests a write lease on the file. The kernel grants it only if no other program has the
// file open. A mapped file counts as open, and so does a descriptor in a socket's queue.
func (r *Remains) Freed() bool {
	if r == nil || r.file == nil {
		return true
	}
	if !r.own {
		again, err := reopen(r.file, unix.O_RDONLY)
		if err != nil { // the process may have reached its limit of descriptors for the moment
			return false
		}
		r.file.Close()
		r.file, r.own = again, true
	}
	// Any other error means that this kernel grants no leases on memfds. Then it is unknown whether
	// the memory is still in use.
	if _, err := unix.FcntlInt(r.file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err == unix.EAGAIN {
		return false
	}
	r.Close()
	return true
}

// Close closes the file, even if other programs still use the memory.
func (r *Remains) Close() {
	if r != nil && r.file != nil {
		file := r.file
		later(func() { file.Close() })
		r.file = nil
	}
}

// reopen opens f's file again, to get a descriptor with its own open file description.
func reopen(f *os.File, mode int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
