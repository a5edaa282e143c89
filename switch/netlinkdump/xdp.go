package netlinkdump

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// XDP features of a device (linux/netdev.h, enum netdev_xdp_act).
const (
	RunsXDP  = 1 // the device runs programs natively
	TakesXDP = 4 // the device accepts frames from XDP programs, its own and those of other devices
)

// XDPFeatures returns the XDP features of an interface. It queries the kernel's netdev family
// (Linux 6.3).
func XDPFeatures(ifindex int) (uint64, error) {
	const (
		devGet          = 1 // NETDEV_CMD_DEV_GET
		attrIfindex     = 1 // NETDEV_A_DEV_IFINDEX
		attrXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	)
	family, err := netdevFamily()
	if err != nil {
		return 0, fmt.Errorf("asking for XDP features (Linux 6.3): %w", err)
	}
	value, err := askGeneric(family, devGet, nl.NewRtAttr(attrIfindex,
		nl.Uint32Attr(uint32(ifindex))), attrXDPFeatures)
	if err != nil {
		return 0, fmt.Errorf("asking for the XDP features of interface %d: %w", ifindex, err)
	}
	if len(value) != 8 {
		return 0, nil
	}
	return nl.NativeEndian().Uint64(value), nil
}

// netdevFamily returns the number of the kernel's netdev family.
var netdevFamily = sync.OnceValues(func() (int, error) {
	value, err := askGeneric(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY,
		nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated("netdev")),
		unix.CTRL_ATTR_FAMILY_ID)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the kernel's netdev family: %w", err)
	case len(value) != 2:
		return 0, errors.New("the kernel's netdev family has no number")
	}
	return int(nl.NativeEndian().Uint16(value)), nil
})

// askGeneric sends a command with one attribute to a family of generic netlink. It returns the
// attribute want of the answer, or nil if the answer does not contain it. It encodes the header
// itself, because nl.Genlmsg fills the reserved bytes from whatever follows the header in memory.
func askGeneric(family int, command byte, with *nl.RtAttr, want uint16) ([]byte, error) {
	req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
	req.AddRawData(append([]byte{command, 1, 0, 0}, with.Serialize()...))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		for _, attr := range attrs {
			if attr.Attr.Type == want {
				return attr.Value, nil
			}
		}
	}
	return nil, nil
}
