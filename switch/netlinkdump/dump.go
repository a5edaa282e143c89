// Package netlinkdump reads lists from the kernel by netlink whole.
package netlinkdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read that changes while it is read: interfaces come and go by the
// dozen where pods do.
const tries = 20

// Whole gives what list does, which lists something by netlink. A list that changed while it was
// read may lack what was there all the time (netlink.ErrDumpInterrupted), so it is read again. The
// error is that of the last time.
func Whole[T any](list func() (T, error)) (all T, err error) {
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
