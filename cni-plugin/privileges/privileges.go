// Package privileges takes unneeded privileges from a process run by root. A process in a
// privileged container has all capabilities; an attacker in it must not be able to load kernel
// modules, set the clock, or trace others.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Capability is one that the agent keeps.
type Capability struct {
	Number int
	Name   string
	For    string // what does not work without it, for people
}

// Needed are the capabilities that the agent keeps. TestAbsence removes each of them and checks
// that its purpose fails.
var Needed = []Capability{
	{unix.CAP_NET_ADMIN, "NET_ADMIN", "making pods' interfaces, routes and tunnels, masquerading, setting network parameters, and attaching programs to interfaces"},
	{unix.CAP_NET_RAW, "NET_RAW", "sending and receiving the switch's frames"},
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "entering pods' network namespaces, loading eBPF, and making the container's /proc/sys writable"},
}

// Numbers are those of capabilities.
func Numbers(of []Capability) []int {
	var out []int
	for _, c := range of {
		out = append(out, c.Number)
	}
	return out
}

// Check says which of some capabilities this process lacks, what for, and what to do; nil: it has
// them.
func Check(of []Capability) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities: %w", err)
	}
	var lacking []error
	for _, c := range of {
		if data[c.Number/32].Effective&(1<<(c.Number%32)) == 0 {
			lacking = append(lacking, fmt.Errorf("the capability %s is missing, which is for %s: run as root, in a container with capabilities.add: [..., %s]", c.Name, c.For, c.Name))
		}
	}
	return errors.Join(lacking...)
}

// Limit leaves this process, and all that it starts, only some capabilities, and forbids it to get
// others by starting anything. Capabilities belong to threads, and a Go program has many: so it
// drops them from the bounding set of one thread and makes that one start the program again, which
// ends all other threads. It returns in the new program, or if nothing was to be done, or with an
// error and no relevant change.
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
