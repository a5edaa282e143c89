package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/offload"
)

// TestRestore changes each kernel setting that the agent has written, and removes each filter. The
// agent must restore all of them and report it.
func TestRestore(t *testing.T) {
	nodes := connectedPair(t, "interp")
	a := nodes[0]
	host := hostEnd(t, a, a.mustAdd(t))
	v4, v6 := "ipv4/conf/"+host+"/", "ipv6/conf/"+host+"/"
	changes := map[string]string{"ipv4/ip_forward": "0", v4 + "rp_filter": "2", v4 + "forwarding": "0",
		v4 + "accept_redirects": "1", v4 + "accept_source_route": "1"}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		changes["ipv6/conf/all/forwarding"] = "0"
		changes[v6+"accept_ra"], changes[v6+"accept_redirects"] = "2", "1"
	}
	setting := func(path string) string {
		t.Helper()
		out, err := inside(t, a.space, func() (string, error) {
			b, err := os.ReadFile(filepath.Join("/proc/sys/net", path))
			return strings.TrimSpace(string(b)), err
		})
		check(t, err)
		return out
	}
	change := func(path, value string) {
		t.Helper()
		_, err := inside(t, a.space, func() (struct{}, error) {
			return struct{}{}, os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0)
		})
		check(t, err)
	}
	was := map[string]string{}
	for path, value := range changes {
		if was[path] = setting(path); was[path] == value {
			t.Fatalf("%s is %s before it is changed", path, value)
		}
	}
	// If the kernel reports a change, the agent restores it at once. With polling only, this would
	// take over 10 s.
	began := time.Now()
	for range 3 {
		change(v4+"rp_filter", "2")
		poll.Until(t, 20*time.Second, "rp_filter is as it was", func() bool { return setting(v4+"rp_filter") == "1" })
	}
	if took := time.Since(began); took > 2*guards.Every {
		t.Errorf("three changes that the kernel reports were undone after %v", took)
	}

	type filter struct {
		what, iface string
		there       func(int) (bool, error)
		detach      func(int) error
	}
	filters := []filter{{guards.IngressFilter, host, ingressfilter.Attached, ingressfilter.Detach},
		{guards.IngressFilter, "ncqnode0", ingressfilter.Attached, ingressfilter.Detach},
		{guards.IngressFilter, podroutes.PeerName(podroutes.Node{Address: netip.MustParseAddr("192.168.0.2")}),
			ingressfilter.Attached, ingressfilter.Detach}}
	if !errors.Is(framefilter.Supported(), framefilter.ErrUnsupported) {
		filters = append(filters, filter{guards.FrameFilter, host, framefilter.Attached, framefilter.Detach})
	}
	for path, value := range changes {
		change(path, value)
	}
	for _, f := range filters {
		a.onHost(t, f.iface, f.detach)
	}
	back := func() error {
		for path, value := range was {
			if is := setting(path); is != value {
				return fmt.Errorf("%s is %s, and was %s", path, is, value)
			}
		}
		for _, f := range filters {
			if there, err := atInterface(t, a, f.iface, f.there); err != nil || !there {
				return fmt.Errorf("%s has no %s (%v)", f.iface, f.what, err)
			}
		}
		return nil
	}
	poll.Nil(t, 30*time.Second, "all is as it was", back, a.output.String)
	for _, f := range filters {
		if line := fmt.Sprintf("what=%q where=%s", f.what, f.iface); !strings.Contains(a.output.String(), line) {
			t.Errorf("the agent does not say %s", line)
		}
	}
	for path := range changes {
		if path == v4+"forwarding" { // the kernel sets this together with ip_forward
			continue
		}
		if line := "what=setting where=" + path; !strings.Contains(a.output.String(), line) {
			t.Errorf("the agent does not say %s", line)
		}
	}
}

// TestRestoreFilter removes a filter of clsact. The kernel reports this, and the agent must restore
// the filter.
func TestRestoreFilter(t *testing.T) {
	n := newNode(t, "10.244.1.0/24", "--after-others")
	n.start()
	host := hostEnd(t, n, n.mustAdd(t))
	began := time.Now()
	for range 3 {
		// the same as "tc qdisc del"
		n.onHost(t, host, func(index int) error { return netlink.QdiscDel(offload.Discipline(index)) })
		poll.Until(t, 20*time.Second, "the filter is there again", func() bool {
			there, err := atInterface(t, n, host, ingressfilter.Attached)
			return err == nil && there
		})
	}
	if took := time.Since(began); took > 2*guards.Every {
		t.Errorf("three deletions that the kernel reports were undone after %v", took)
	}
}

// atInterface calls ask with the index of an interface of a node.
func atInterface(t *testing.T, n *node, iface string, ask func(ifindex int) (bool, error)) (bool, error) {
	t.Helper()
	return inside(t, n.space, func() (bool, error) {
		l, err := net.InterfaceByName(iface)
		if err != nil {
			return false, err
		}
		return ask(l.Index)
	})
}
