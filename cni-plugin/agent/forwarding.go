package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// EnableForwarding makes the node forward IPv4 and IPv6 packets.
//
// A router ignores Router Advertisements. So when an interface starts to forward IPv6, the kernel
// drops the default route that it has learnt from them. EnableForwarding sets accept_ra to 2 on
// such interfaces, so that the node keeps the route.
func EnableForwarding() error {
	if _, _, err := forwardIPv4(); err != nil {
		return err
	}
	if _, _, err := forwardIPv6(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// forwardIPv4 enables IPv4 forwarding. It returns the setting's path, and whether it changed it.
func forwardIPv4() (path string, changed bool, err error) {
	path = "ipv4/ip_forward"
	changed, err = setSysctl(path, "1")
	return path, changed, err
}

// forwardIPv6 enables IPv6 forwarding, after it has preserved the routes from Router
// Advertisements.
func forwardIPv6() (path string, changed bool, err error) {
	if err := keepRouters(); err != nil {
		return allForwarding, false, err
	}
	changed, err = setSysctl(allForwarding, "1")
	return allForwarding, changed, err
}

// allForwarding is the path of the setting that makes a node forward IPv6.
const allForwarding = "ipv6/conf/all/forwarding"

// keepRouters finds the interfaces that have routes from Router Advertisements. It makes them
// continue to accept Router Advertisements.
func keepRouters() error {
	routes, err := netlinkdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA},
			netlink.RT_FILTER_PROTOCOL)
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // the machine has no IPv6
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
			if _, err := setSysctl(path, "2"); err != nil {
				return err
			}
		}
	}
	return nil
}
