// Package netlinkdump reads complete lists from the kernel by netlink.
package netlinkdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is the maximum number of attempts to read a list that changes meanwhile. On a host with
// pods, dozens of interfaces come and go at a time.
const tries = 20

// Whole returns the result of list, which reads a list by netlink. A list that changed while it was
// read may lack elements that existed all the time (netlink.ErrDumpInterrupted). In that case Whole
// calls list again. The error is that of the last attempt.
func Whole[T any](list func() (T, error)) (all T, err error) {
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
