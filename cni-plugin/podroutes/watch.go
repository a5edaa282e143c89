package podroutes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/netnews"
)

// Watch calls changed soon after another program has deleted a route of this package or a NetCRAQ
// tunnel. It also does so after an interface that such routes may use was set down or up. It
// watches the calling thread's network namespace in the background until ctx ends.
func Watch(ctx context.Context, log *slog.Logger, changed func()) error {
	groups := []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}
	if err := netnews.Watch(ctx, log, groups, concernsRoutes, changed); err != nil {
		return fmt.Errorf("watching routes and interfaces: %w", err)
	}
	return nil
}

func concernsRoutes(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_DELROUTE:
		return len(m.Data) >= unix.SizeofRtMsg && nl.DeserializeRtMsg(m.Data).Protocol == Protocol
	case unix.RTM_DELLINK:
		l, err := netlink.LinkDeserialize(nil, m.Data)
		return err == nil && isTunnel(l.Attrs().Name)
	case unix.RTM_NEWLINK: // if an interface goes down, the kernel does not report the routes that it removes
		if len(m.Data) < unix.SizeofIfInfomsg || nl.DeserializeIfInfomsg(m.Data).Change&unix.IFF_UP == 0 {
			return false
		}
		l, err := netlink.LinkDeserialize(nil, m.Data)
		return err == nil && (isTunnel(l.Attrs().Name) || l.Type() != "veth") // pods' interfaces are veths, and numerous
	}
	return false
}

// isTunnel reports whether an interface name belongs to a NetCRAQ tunnel.
func isTunnel(name string) bool {
	return strings.HasPrefix(name, Device) || strings.HasPrefix(name, peerPrefix)
}
