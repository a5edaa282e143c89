package netlinkdump

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct {
		interrupted int
		then        error
		calls       int
		want        error
	}{{0, nil, 1, nil}, {3, nil, 4, nil}, {2, other, 3, other}, {1000, nil, tries, netlink.ErrDumpInterrupted}} {
		calls := 0
		got, err := Whole(func() (int, error) {
			if calls++; calls <= c.interrupted {
				return 0, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return 7, c.then
		})
		if calls != c.calls || !errors.Is(err, c.want) || err == nil && got != 7 {
			t.Errorf("after %d that were interrupted, and then %v: %d, %v in %d calls", c.interrupted, c.then, got, err, calls)
		}
	}
}
