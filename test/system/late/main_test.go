// Package late has the tests in which messages between the controllers and the switches arrive
// late, in another order, or after the caller has given up (package p4proxy). Such messages must
// not cause the loss of anything that was acknowledged.
//
//	NETCRAQ_LATE_ENGINES  kinds of switches, separated by commas: auto, interp, tc, xdp, bmv2 (default interp,auto)
//	NETCRAQ_LATE_SECONDS  duration of TestLateMessages with each engine and each store (default 12)
package late

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/test/system/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// onEachEngine runs a test with each kind of switch, in its own network namespace. BMv2 runs only
// if it is chosen, and some tests skip it.
func onEachEngine(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range strings.Split(setting("ENGINES", "interp,auto"), ",") {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // each engine's test has its own process and network, and mostly waits
			if engine == "bmv2" {
				lab.MustLook(t, "simple_switch_grpc")
			}
			if lab.InNamespace(t) {
				test(t, engine)
			}
		})
	}
}

func setting(name, otherwise string) string {
	if v := os.Getenv("NETCRAQ_LATE_" + name); v != "" {
		return v
	}
	return otherwise
}

// ring returns a layout of n switches in a ring. It has a proxy for each switch that can delay
// P4Runtime's messages.
func ring(n int, chains ...lab.Chain) lab.Layout {
	l := lab.Layout{N: n, Messages: true, Chains: chains}
	for i := 1; i < n; i++ {
		l.Links = append(l.Links, [2]int{i, i + 1})
	}
	if n > 2 {
		l.Links = append(l.Links, [2]int{n, 1})
	}
	return l
}

// lease is the duration of the leases in these tests, in milliseconds. It is so long that chains on
// a busy machine lose few members without a fault.
const lease = 800

// number returns the number in a switch's name.
func number(t *testing.T, name string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(name, "s%d", &n); err != nil {
		t.Fatalf("the switch %q: %v", name, err)
	}
	return n
}

// within returns a context with a time limit.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// user creates a client of all chains at a host, with sessions that are leased to the host.
func user(nw *lab.Network, c *lab.Controller, host int) *client.Client {
	nw.T.Helper()
	cfg := client.Config{Profile: nw.Layout.Profile}
	for _, ch := range nw.Layout.Chains {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(lab.ServiceAddrOf(ch.ID), wire.Port))
	}
	cfg.Services = cfg.Addresses
	for i := 1; i <= nw.Layout.N; i++ {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(lab.SwitchAddr(i), wire.Port))
	}
	var own []client.Session
	for _, s := range c.SessionsFor(4) {
		own = append(own, client.Session{ID: s.ID, NextRequest: s.NextRequest})
	}
	cfg.Sessions = client.StaticSessions(own...)
	var u *client.Client
	var err error
	if e := nw.Hosts[host-1].Inside(func() { u, err = client.New(nw.T.Context(), cfg) }); e != nil {
		nw.T.Fatal(e)
	}
	if err != nil {
		nw.T.Fatal(err)
	}
	nw.T.Cleanup(func() { u.Close() })
	return u
}

// service makes a request go to the service address of its key's chain.
func service(key uint32) client.Option {
	return client.AskAddresses(netip.AddrPortFrom(lab.ServiceAddrOf(int(wire.Key(key).Chain())), wire.Port))
}

// specs returns n keys whose names begin with kind. If values is set, each key has its name as its
// value; otherwise it has no value.
func specs(kind string, n int, values bool) (all []admin.KeySpec) {
	for i := range n {
		k := admin.KeySpec{Name: fmt.Sprint(kind, i)}
		if values {
			k.Value = []byte(k.Name)
		}
		all = append(all, k)
	}
	return all
}

func add(c *lab.Controller, chain string, keys []admin.KeySpec) []admin.Key {
	c.T.Helper()
	placed, err := c.API.AddKeys(c.T.Context(), chain, keys)
	if err != nil {
		c.T.Fatalf("%v\n%s", err, c.History())
	}
	for _, k := range placed {
		if k.Error != nil {
			c.T.Fatalf("%s was not added: %v\n%s", k.Name, k.Error, c.History())
		}
	}
	return placed
}

func remove(c *lab.Controller, chain string, keys []admin.KeySpec) {
	c.T.Helper()
	for _, k := range keys {
		if err := c.API.RemoveKey(c.T.Context(), chain, k.Name); err != nil {
			c.T.Fatalf("removing %s: %v\n%s", k.Name, err, c.History())
		}
	}
}

// members changes the members of a chain to exactly the given switches.
func members(c *lab.Controller, chain string, names ...string) {
	c.T.Helper()
	c.WaitUntil(func() bool {
		_, err := c.API.ChangeChain(c.T.Context(), chain, admin.ChainChange{Members: &names})
		return err == nil
	}, fmt.Sprintf("%s to have the members %v", chain, names))
	c.WaitUntil(func() bool {
		ch, err := c.API.Chain(c.T.Context(), chain)
		return err == nil && ch.Ready && len(ch.Members) == len(names)
	}, chain+" to be ready")
}

// settled waits until all packets that are in the network have arrived.
func settled() { time.Sleep(700 * time.Millisecond) }

// release delivers the held messages, and returns their results.
func release(t *testing.T, held *p4proxy.Caught) []p4proxy.Delivery {
	t.Helper()
	d, err := held.Release(within(t, 30*time.Second))
	if err != nil {
		t.Fatalf("delivering late: %v", err)
	}
	return d
}
