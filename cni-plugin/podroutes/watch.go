package podroutes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// settle is the time for which Watch collects news before it calls changed.
const settle = 50 * time.Millisecond

// Watch calls changed soon after somebody has deleted a route of this package or a tunnel of
// NetCRAQ's in the calling thread's network namespace, until ctx ends. It returns at once. The
// kernel may lose news; so what Watch is for has to be looked at now and then anyway.
func Watch(ctx context.Context, log *slog.Logger, changed func()) error {
	space, err := netns.Get()
	if err != nil {
		return fmt.Errorf("watching routes: %w", err)
	}
	failed := func(err error) { log.Debug("news of routes and interfaces ended", "err", err) }
	routes, links := make(chan netlink.RouteUpdate, 64), make(chan netlink.LinkUpdate, 64)
	err = netlink.RouteSubscribeWithOptions(routes, ctx.Done(),
		netlink.RouteSubscribeOptions{Namespace: &space, ErrorCallback: failed})
	if err == nil {
		err = netlink.LinkSubscribeWithOptions(links, ctx.Done(),
			netlink.LinkSubscribeOptions{Namespace: &space, ErrorCallback: failed})
	}
	space.Close()
	if err != nil {
		return fmt.Errorf("watching routes and interfaces: %w", err)
	}
	go func() {
		var due <-chan time.Time
		lost := func(is bool) {
			if is && due == nil {
				due = time.After(settle)
			}
		}
		for routes != nil || links != nil || due != nil {
			select {
			case <-ctx.Done():
				return
			case u, ok := <-routes:
				if !ok {
					routes = nil
				}
				lost(!ok || u.Type == unix.RTM_DELROUTE && u.Protocol == Protocol)
			case u, ok := <-links:
				if !ok {
					links = nil
				}
				lost(!ok || u.Header.Type == unix.RTM_DELLINK && (strings.HasPrefix(u.Attrs().Name, Device) ||
					strings.HasPrefix(u.Attrs().Name, peerPrefix)))
			case <-due:
				due = nil
				changed()
			}
		}
	}()
	return nil
}
