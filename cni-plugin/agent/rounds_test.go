package agent_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

var podRounds = flag.Int("pod-rounds", 5, "how many rounds TestPodRounds has")

// attached is an interface of a container. It is live between its ADD and its DEL.
type attached struct {
	pod  *pod
	ns   *netlink.Handle // handle for the container's namespace
	live bool
}

// rounds makes random calls for many containers of one node.
type rounds struct {
	n    *node
	l    *libcni.NetworkConfigList
	host *netlink.Handle
	all  []*attached
	// other is a libcni configuration whose cache knows no container. In its GC, only the plugin
	// removes stale attachments. Its DEL does not change what a concurrent ADD writes to the first
	// configuration's cache.
	other *libcni.CNIConfig

	mu   sync.Mutex
	done map[string]int // number of calls by kind
}

func (r *rounds) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[what]++
}

// addSome makes several concurrent ADDs of one interface, and returns the errors of those that
// failed.
func (r *rounds) addSome(t *testing.T, a *attached, most int) (failures []error) {
	t.Helper()
	var mu sync.Mutex
	var adding sync.WaitGroup
	for range most {
		adding.Go(func() {
			own := *a.pod
			_, err := r.n.add(t, r.l, &own)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err)
			} else {
				a.pod.ip, a.pod.ips, a.live = own.ip, own.ips, true
			}
		})
	}
	adding.Wait()
	return failures
}

// change makes one call for an interface. No other goroutine changes this interface meanwhile.
func (r *rounds) change(t *testing.T, a *attached, which int) {
	if !a.live {
		r.count("concurrent ADDs")
		const most = 3
		if failures := r.addSome(t, a, most); len(failures) != most-1 {
			t.Errorf("of %d ADDs of %s %s at once %d failed: %v", most, a.pod.space, a.pod.rt.IfName, len(failures),
				errors.Join(failures...))
		}
		return
	}
	switch which {
	case 0:
		r.count("repeated ADDs")
		r.refused(t, a)
	case 1:
		r.count("DELs")
		if err := errors.Join(r.n.del(t, r.l, a.pod), r.n.del(t, r.l, a.pod)); err != nil {
			t.Errorf("DEL, twice: %v", err)
		}
		a.live = false
	case 2: // an ADD after the DEL succeeds, and an ADD before it does not
		r.count("DELs beside an ADD")
		a.live = false
		var deleting sync.WaitGroup
		deleting.Go(func() {
			if err := r.n.run(t, func(ctx context.Context) error {
				return r.other.DelNetworkList(ctx, r.l, a.pod.rt)
			}); err != nil {
				t.Errorf("DEL beside ADD: %v", err)
			}
		})
		r.addSome(t, a, 1)
		deleting.Wait()
	}
	if a.live {
		r.check(t, a)
	}
}

func (r *rounds) check(t *testing.T, a *attached) {
	t.Helper()
	r.count("CHECKs")
	if err := r.n.check(t, r.l, a.pod); err != nil {
		t.Errorf("CHECK of %s %s: %v", a.pod.space, a.pod.rt.IfName, err)
	}
}

// refused makes an ADD of an attached interface, which the plugin must refuse.
func (r *rounds) refused(t *testing.T, a *attached) {
	t.Helper()
	own := *a.pod
	_, err := r.n.add(t, r.l, &own)
	expectCode(t, "ADD of what is attached", err, agentapi.CodeExists)
}

// collect makes a GC as a runtime that has forgotten one interface. The specification forbids ADD
// and DEL during a GC. So only CHECKs and refused ADDs run at the same time.
func (r *rounds) collect(t *testing.T, rng *rand.Rand) {
	t.Helper()
	r.count("GCs")
	live := slices.DeleteFunc(slices.Clone(r.all), func(a *attached) bool { return !a.live })
	rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	if len(live) < 3 {
		return
	}
	live[0].live = false
	args := &libcni.GCArgs{}
	for _, a := range live[1:] {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: a.pod.rt.ContainerID,
			IfName: a.pod.rt.IfName})
	}
	var beside sync.WaitGroup
	beside.Go(func() { r.check(t, live[1]) })
	beside.Go(func() { r.refused(t, live[2]) })
	if err := r.n.run(t, func(ctx context.Context) error { return r.other.GCNetworkList(ctx, r.l, args) }); err != nil {
		t.Errorf("GC: %v", err)
	}
	beside.Wait()
}

// lost returns an error that says what a live interface has lost, or nil.
func (a *attached) lost(n *node, host *netlink.Handle) error {
	link, err := a.ns.LinkByName(a.pod.rt.IfName)
	if err != nil {
		return err
	}
	var lost []error
	for i, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		ip := a.pod.ips[i]
		has := func(list []netlink.Addr) bool {
			return slices.ContainsFunc(list, func(x netlink.Addr) bool { return x.IP.Equal(ip.AsSlice()) })
		}
		if list, err := a.ns.AddrList(link, family); err != nil || !has(list) {
			lost = append(lost, fmt.Errorf("its address %s (it has %v, %v)", ip, list, err))
		}
		routes, err := a.ns.RouteList(link, family)
		if err != nil || !slices.ContainsFunc(routes, func(x netlink.Route) bool { return x.Gw != nil }) {
			lost = append(lost, fmt.Errorf("its default route (it has %v, %v)", routes, err))
		}
		to, err := host.RouteGet(ip.AsSlice())
		if err != nil || len(to) != 1 || to[0].LinkIndex != link.Attrs().ParentIndex {
			lost = append(lost, fmt.Errorf("the node's route to %s (it is %v, %v)", ip, to, err))
		}
		lease, err := os.ReadFile(filepath.Join(n.dir, "addresses", "pods", strings.ReplaceAll(ip.String(), ":", "_")))
		if err != nil && ip.Is6() {
			lease, err = os.ReadFile(filepath.Join(n.dir, "addresses", "pods", ip.String()))
		}
		if want := a.pod.rt.ContainerID + "\r\n" + a.pod.rt.IfName; string(lease) != want {
			lost = append(lost, fmt.Errorf("the lease of %s (it is %q, %v)", ip, lease, err))
		}
	}
	return errors.Join(lost...)
}

// verify checks every live interface. It also checks that nothing is left of interfaces that are
// not live.
func (r *rounds) verify(t *testing.T, when string) {
	t.Helper()
	given, live := map[netip.Addr]*attached{}, 0
	for _, a := range r.all {
		if !a.live {
			continue
		}
		live++
		if err := a.lost(r.n, r.host); err != nil {
			t.Errorf("%s: %s %s has lost %v", when, a.pod.space, a.pod.rt.IfName, err)
		}
		for _, ip := range a.pod.ips {
			if b := given[ip]; b != nil {
				t.Errorf("%s: %s is given twice: to %s and to %s", when, ip, a.pod.space, b.pod.space)
			}
			given[ip] = a
		}
	}
	leases, _ := filepath.Glob(filepath.Join(r.n.dir, "addresses", "pods", "*[0-9a-f:_]*"))
	leases = slices.DeleteFunc(leases, func(s string) bool {
		return strings.HasPrefix(filepath.Base(s), "last_reserved") || filepath.Base(s) == "lock"
	})
	records, _ := filepath.Glob(filepath.Join(r.n.state(), "*.json"))
	interfaces := 0
	links, err := r.host.LinkList()
	check(t, err)
	for _, l := range links {
		if l.Type() == "veth" {
			interfaces++
		}
	}
	if len(leases) != 2*live || len(records) != live || interfaces != live {
		t.Errorf("%s: %d interfaces are live, and there are %d leases, %d records and %d interfaces of the node",
			when, live, len(leases), len(records), interfaces)
	}
}

// TestPodRounds makes concurrent ADDs, repeated ADDs, DELs, CHECKs and GCs for 40 containers with
// two interfaces each. No live interface may lose its link, an address, a route or a lease. No
// address may be assigned twice. Nothing of a removed interface may be left.
func TestPodRounds(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.second = netip.MustParsePrefix("fd00:244:0:1::/64")
	n.start()
	at := func(space string) *netlink.Handle {
		ns, err := netns.GetFromName(space)
		check(t, err)
		defer ns.Close()
		h, err := netlink.NewHandleAt(ns)
		check(t, err)
		t.Cleanup(h.Close)
		return h
	}
	r := &rounds{n: n, l: n.list(), host: at(n.space), done: map[string]int{}, other: libcni.NewCNIConfigWithCacheDir(
		[]string{n.bin}, filepath.Join(n.dir, "nothing"), &invoke.DefaultExec{RawExec: &invoke.RawExec{}})}
	for range 40 {
		p := n.newPod(t)
		ns := at(p.space)
		second := *p
		rt := *p.rt
		second.rt, rt.IfName = &rt, "net1"
		r.all = append(r.all, &attached{pod: p, ns: ns}, &attached{pod: &second, ns: ns})
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("%d rounds, seed %d", *podRounds, seed)
	began := time.Now()
	for round := range *podRounds {
		when := fmt.Sprintf("round %d", round)
		changes := rng.Perm(len(r.all))[:4]
		if round == 0 { // after the first round there are many containers
			changes = rng.Perm(len(r.all))[:min(6+*podRounds, 40)]
		}
		var changing sync.WaitGroup
		for _, i := range changes {
			which := rng.IntN(4)
			changing.Go(func() { r.change(t, r.all[i], which) })
		}
		changing.Wait()
		r.verify(t, when)
		if round%3 == 1 {
			r.collect(t, rng)
			r.verify(t, when+", after a GC")
		}
		if t.Failed() {
			break
		}
		if (round+1)%50 == 0 {
			t.Logf("after %d rounds and %v: %v", round+1, time.Since(began).Round(time.Second), r.done)
		}
	}
	for _, a := range r.all {
		if a.live {
			check(t, n.del(t, r.l, a.pod))
		}
	}
	n.expectNothingLeft(t)
	t.Logf("there were %v", r.done)
}
