package queues

import (
	"maps"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestNewPort checks that a port that is added later is found when depths are read next, and that a
// removed port is forgotten.
func TestNewPort(t *testing.T) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Skipf("no netlink: %v", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Skipf("no loopback interface: %v", err)
	}
	names := map[uint32]string{}
	depths := map[uint32]uint32{}
	w := &Watch{handle: h, ports: func() map[uint32]string { return names },
		set: func(port, depth uint32) { depths[port] = depth }}
	for n, c := range []struct {
		names map[uint32]string
		known map[uint32]int
	}{
		{map[uint32]string{}, map[uint32]int{}},
		{map[uint32]string{3: "lo"}, map[uint32]int{3: lo.Attrs().Index}},
		{map[uint32]string{3: "lo", 4: "not there"}, map[uint32]int{3: lo.Attrs().Index}},
		{map[uint32]string{4: "lo"}, map[uint32]int{4: lo.Attrs().Index}},
		{map[uint32]string{}, map[uint32]int{}},
	} {
		names = c.names
		if w.look(n); !maps.Equal(w.known, c.known) {
			t.Errorf("of the ports %v these are watched: %v, not %v", c.names, w.known, c.known)
		}
	}
	// A removed port gets depth 0.
	w.depths = map[uint32]uint32{5: 7}
	if w.look(1); len(depths) != 1 || depths[5] != 0 {
		t.Errorf("told were %v", depths)
	}
}
