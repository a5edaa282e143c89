// Package privileges takes from a process run by root what it has no use for. A process in a privileged container has all capabilities; one that is taken over must not be able
// to load kernel modules, set the clock, or trace others.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Needed are what the agent keeps. Each was found by leaving it out: the tests of cni-plugin/agent fail without it.
var Needed = []int{
	unix.CAP_NET_ADMIN, // interfaces, routes, programs at them
	unix.CAP_NET_RAW,   // frames of the interpreter's ports and of the switch's own
	unix.CAP_SYS_ADMIN, // pods' network namespaces, and eBPF
}

// Limit leaves this process, and all that it starts, only some capabilities, and forbids it to get others by starting anything. Capabilities are those of threads, and a Go
// program has many: so it drops them from the bounding set of one thread and has that one start the program anew, by which all threads end but it. It returns in the new
// program, or where nothing was to be done, or with an error and nothing changed that matters.
func Limit(keep []int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	extra, err := beyond(keep)
	if err != nil || len(extra) == 0 {
		return err
	}
	runtime.LockOSThread() // for good: this thread has less than the others from now on
	for _, c := range extra {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			if errors.Is(err, unix.EPERM) {
				return fmt.Errorf("dropping capabilities takes one, CAP_SETPCAP: %w", err)
			}
			return fmt.Errorf("dropping the capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding new privileges: %w", err)
	}
	return fmt.Errorf("starting anew with fewer privileges: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// beyond are the capabilities of the bounding set that are not to be kept.
func beyond(keep []int) ([]int, error) {
	var out []int
	for c := 0; ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		switch {
		case errors.Is(err, unix.EINVAL): // there are no more
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading the capabilities: %w", err)
		case has == 1 && !slices.Contains(keep, c):
			out = append(out, c)
		}
	}
}
