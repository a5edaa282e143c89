package podroutes

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/internal/netnews"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestWatch deletes a route to another node's pods and a tunnel, as a restarting network manager
// does. It also deletes another program's route.
func TestWatch(t *testing.T) {
	x := newTunnelled(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := make(chan struct{}, 100)
	x.node.Do(func() error {
		return Watch(ctx, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} })
	})
	hears := func(what string, want bool) {
		t.Helper()
		patience := 10 * time.Second
		if !want {
			patience = 4 * netnews.Settle
		}
		select {
		case <-changed:
			if !want {
				t.Errorf("%s: it is told", what)
			}
		case <-time.After(patience):
			if want {
				t.Errorf("%s: it is not told", what)
			}
		}
	}
	routes, err := x.node.Link.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: Protocol},
		netlink.RT_FILTER_PROTOCOL)
	udptest.Check(t, err)
	if len(routes) != 3 { // two routes lead to nodes, and one discards packets
		t.Fatalf("routes: %v", routes)
	}
	foreign := netlink.Route{Dst: ipNet(x.others[0].PodCIDRs[0]), Gw: x.self.Address.Next().AsSlice(), Priority: 7}
	udptest.Check(t, x.node.Link.RouteAdd(&foreign))
	udptest.Check(t, x.node.Link.RouteDel(&foreign))
	hears("somebody else's route is deleted", false)
	for _, r := range routes {
		udptest.Check(t, x.node.Link.RouteDel(&r))
	}
	hears("all routes are deleted", true)
	hears("nothing more", false)
	x.apply()
	hears("they are there again", false)
	link, err := x.node.Link.LinkByName(x.links[0])
	udptest.Check(t, err)
	udptest.Check(t, x.node.Link.LinkDel(link))
	hears("the tunnel of a switch is deleted", true)
	link, err = x.node.Link.LinkByName(Device)
	udptest.Check(t, err)
	udptest.Check(t, x.node.Link.LinkSetDown(link))
	hears("the tunnel of the pods is set down, and its routes go", true)
	cancel()
}

// TestWatchLostNews makes the kernel drop notifications, because no one reads them for a while.
// Watch must report the loss, and then the next deletion as before.
func TestWatchLostNews(t *testing.T) {
	x := newTunnelled(t)
	changed, goOn := make(chan struct{}), make(chan struct{})
	x.node.Do(func() error {
		return Watch(t.Context(), slog.New(slog.DiscardHandler), func() { changed <- struct{}{}; <-goOn })
	})
	hears := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it is not told", what)
		}
	}
	route := netlink.Route{Dst: ipNet(x.others[0].PodCIDRs[0]), Gw: x.self.Address.Next().AsSlice(), Priority: 7,
		Protocol: Protocol}
	remove := func() {
		t.Helper()
		udptest.Check(t, x.node.Link.RouteAdd(&route))
		udptest.Check(t, x.node.Link.RouteDel(&route))
	}
	remove()
	hears("the first deletion")
	for range 1000 { // twice as many notifications as fit into a socket's buffer
		remove()
	}
	goOn <- struct{}{}
	hears("deletions of which some news are lost")
	for quiet := false; !quiet; { // skip the notifications from before the loss, and the report of the loss
		goOn <- struct{}{}
		select {
		case <-changed:
		case <-time.After(time.Second):
			quiet = true
		}
	}
	remove()
	hears("a deletion after the loss")
	goOn <- struct{}{}
}
