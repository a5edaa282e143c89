// Package privileges drops privileges that a root process does not need. A process in a privileged
// container has all capabilities. An attacker who controls the process must not be able to load
// kernel modules, set the clock, or trace other processes.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Capability is a Linux capability that the agent keeps.
type Capability struct {
	Number int
	Name   string
	For    string // purpose of the capability, for error messages
}

// Needed are the capabilities that the agent keeps. TestAbsence removes each of them, and checks
// that the actions for which it is needed then fail.
var Needed = []Capability{
	{unix.CAP_NET_ADMIN, "NET_ADMIN", "making pods' interfaces, routes and tunnels, masquerading, setting network parameters, and attaching programs to interfaces"},
	{unix.CAP_NET_RAW, "NET_RAW", "sending and receiving the switch's frames"},
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "entering pods' network namespaces, loading eBPF, and making the container's /proc/sys writable"},
}

// Numbers returns the numbers of capabilities.
func Numbers(of []Capability) []int {
	var out []int
	for _, c := range of {
		out = append(out, c.Number)
	}
	return out
}

// Check returns an error if this process lacks any of these capabilities. The error names the
// missing capabilities, their purposes and the remedy.
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

// Limit reduces the capabilities of this process, and of all programs that it starts, to keep.
// Capabilities belong to threads, and a Go program has many. So Limit drops them from the bounding
// set of one thread. It then makes that thread start the program again, which ends all other
// threads. Limit returns in the new program. If there was nothing to do, or if it failed, it
// returns in the old program, with no relevant change.
func Limit(keep []int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	extra, err := beyond(keep)
	if err != nil || len(extra) == 0 {
		return err
	}
	runtime.LockOSThread() // never unlocked, because from here on this thread has fewer privileges than the others
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

// beyond returns the capabilities of the bounding set that are not in keep.
func beyond(keep []int) ([]int, error) {
	var out []int
	for c := 0; ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		switch {
		case errors.Is(err, unix.EINVAL): // no capability has this number or a higher one
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading the capabilities: %w", err)
		case has == 1 && !slices.Contains(keep, c):
			out = append(out, c)
		}
	}
}
