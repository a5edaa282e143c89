package segment

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Remains is a memfd that this process no longer uses. The kernel frees its memory when no other
// program has it open or mapped.
type Remains struct {
	file *os.File
	own  bool // no caller got file's open file description
}

// Freed reports whether no program keeps the memory, and then releases it. A nil Remains is free.
//
// The kernel grants a write lease on a file only if no one else has it open. A mapping and a
// descriptor that is being sent over a socket count as open.
func (r *Remains) Freed() bool {
	if r == nil || r.file == nil {
		return true
	}
	if !r.own {
		again, err := reopen(r.file, unix.O_RDONLY)
		if err != nil { // there may be no free descriptor at the moment
			return false
		}
		r.file.Close()
		r.file, r.own = again, true
	}
	// Any other error means that this kernel grants no leases on memfds, so the answer is unknown.
	if _, err := unix.FcntlInt(r.file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err == unix.EAGAIN {
		return false
	}
	r.Close()
	return true
}

// Close releases the file, whichever program keeps the memory.
func (r *Remains) Close() {
	if r != nil && r.file != nil {
		file := r.file
		later(func() { file.Close() })
		r.file = nil
	}
}

// reopen makes a descriptor of f's file with its own open file description.
func reopen(f *os.File, mode int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
