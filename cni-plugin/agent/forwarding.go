package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/netdump"
)

// EnableForwarding makes the node one that passes packets on, in both families.
//
// A router takes no Router Advertisements: as soon as an interface forwards IPv6, the kernel
// forgets the default route that it has learnt there. A node that has one keeps it (accept_ra 2).
func EnableForwarding() error {
	if err := setSysctl("ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := keepRouters(); err != nil {
		return err
	}
	if err := setSysctl("ipv6/conf/all/forwarding", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// keepRouters has interfaces with routes from Router Advertisements go on taking these.
func keepRouters() error {
	routes, err := netdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA},
			netlink.RT_FILTER_PROTOCOL)
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // there is no IPv6
	}
	if err != nil {
		return fmt.Errorf("listing the routes that routers have told: %w", err)
	}
	for _, r := range routes {
		l, err := netlink.LinkByIndex(r.LinkIndex)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("an interface with a route that a router has told: %w", err)
		}
		path := "ipv6/conf/" + l.Attrs().Name + "/accept_ra"
		if b, err := os.ReadFile(filepath.Join(sysctls, "net", path)); err == nil && string(b) == "1\n" {
			if err := setSysctl(path, "2"); err != nil {
				return err
			}
		}
	}
	return nil
}
