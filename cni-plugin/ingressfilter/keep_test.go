package ingressfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// TestKeep simulates a firewall that is reloaded and so deletes all tables. KeepRules must restore
// the stack filter at once, with its last rules. It must not restore a table that the agent itself
// has removed.
func TestKeep(t *testing.T) {
	r := newRoute(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	restored := make(chan string, 100)
	first := Tunnels{Port: vxlan, Ends: []TunnelEnd{{nodeAddr, "out"}}, From: []Tunnel{{victimAddr, 7}}}
	last := first
	last.From = append(last.From, Tunnel{netip.MustParseAddr("10.2.0.3"), 9})
	r.node.Do(func() error {
		return errors.Join(ApplyTunnels(first), ApplySwitch(netcraq, "ncqnode"), ApplyTunnels(last),
			KeepRules(ctx, func(name string, err error) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				restored <- name
			}))
	})
	p := r.packet(1000, nodeAddr, netcraq)
	if got := r.arrive(p); len(got) > 0 {
		t.Fatalf("with the filter there arrives %v", got)
	}
	for range 3 {
		r.node.Do(func() error { // the same as "nft flush ruleset"
			conn, err := nftables.New()
			check(t, err)
			conn.FlushRuleset()
			return conn.Flush()
		})
		var names []string
		for range 2 {
			select {
			case name := <-restored:
				names = append(names, name)
			case <-time.After(nftwatch.Every / 2):
				t.Fatalf("half a second after all was deleted there is again: %v", names)
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{SwitchTable, TunnelsTable}) {
			t.Errorf("there is again: %v", names)
		}
		if got := r.arrive(p); len(got) > 0 {
			t.Errorf("with the filter there again there arrives %v", got)
		}
	}
	r.node.Do(RemoveSwitch)
	time.Sleep(nftwatch.Every + nftwatch.Every/2)
	if got := r.arrive(p); !slices.Contains(got, "plain") {
		t.Errorf("without the filter there arrives %v", got)
	}
	if len(restored) > 0 {
		t.Errorf("%s is there again, which was removed", <-restored)
	}
}
