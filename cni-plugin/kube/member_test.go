package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestMemberNumbered checks that a node without IPv4 connects to its switch once it has a number.
// The node must restart if the number changes.
func TestMemberNumbered(t *testing.T) {
	w := testutil.World(t, testutil.Node(1), testutil.Numbered("n01", 5, 0))
	var restart, fails error
	var numbers []int32
	m := &member{client: w, self: nodeview.FromNode(testutil.Node(1)).Node, claims: &nodeclaims.Claims{},
		log:     slog.New(slog.DiscardHandler),
		route:   func(podroutes.Node, []podroutes.Node) error { return nil },
		connect: func(podroutes.Node, map[uint32]podroutes.Node) error { return nil },
		connectNumbered: func(number int32) error {
			numbers = append(numbers, number)
			return fails
		},
		restart: func(err error) { restart = err }}
	testutil.Reconcile(t, m)
	if len(numbers) != 1 || numbers[0] != 5 || restart != nil {
		t.Errorf("connected by the numbers %v, %v", numbers, restart)
	}
	fails = errRenumbered
	testutil.Reconcile(t, m)
	if restart == nil || !strings.Contains(restart.Error(), "under another address") {
		t.Errorf("its number has changed: %v", restart)
	}
}

// TestMember checks that an agent connects to the existing nodes, by their numbers, and publishes
// its own address.
func TestMember(t *testing.T) {
	impostor := testutil.Node(5) // this node claims the address of n02
	impostor.Status.Addresses[1].Address = "192.0.2.2"
	w := testutil.World(t, testutil.Node(1), testutil.Node(2), testutil.Node(3), testutil.Node(4), impostor,
		testutil.Numbered("n01", 1, 0), testutil.Numbered("n02", 7, 0), testutil.Numbered("n04", 2, 0),
		testutil.Numbered("n05", 3, 0), testutil.Numbered("gone", 5, 0))
	var routes, ports []string
	var restart error
	m := &member{client: w, self: nodeview.FromNode(testutil.Node(1)).Node, claims: &nodeclaims.Claims{},
		status: v1alpha1.NetcraqNodeStatus{P4Runtime: "192.0.2.1:9559"}, log: slog.New(slog.DiscardHandler),
		route: func(_ podroutes.Node, others []podroutes.Node) error {
			routes = nil
			for _, n := range others {
				if n.Address.IsValid() { // podroutes skips nodes without an address
					routes = append(routes, fmt.Sprintf("%s via %s", n.PodCIDRs[0], n.Address))
				}
			}
			return errors.New("one of them cannot be reached") // other nodes are still connected
		},
		connect: func(_ podroutes.Node, peers map[uint32]podroutes.Node) error {
			ports = nil
			for number, n := range peers {
				ports = append(ports, fmt.Sprintf("%d@%s", number, n.Name))
			}
			slices.Sort(ports)
			return nil
		},
		connectNumbered: func(int32) error { return nil },
		restart:         func(err error) { restart = err }}
	testutil.Reconcile(t, m)
	if got := strings.Join(routes, ", "); got != "10.244.2.0/24 via 192.0.2.2, 10.244.3.0/24 via 192.0.2.3, 10.244.4.0/24 via 192.0.2.4" {
		t.Errorf("routes: %s", got)
	}
	if got := strings.Join(ports, " "); got != "2@n04 7@n02" { // n03 has no number, and "gone" has no Node object
		t.Errorf("ports: %s", got)
	}
	var own v1alpha1.NetcraqNode
	if err := w.Get(t.Context(), client.ObjectKey{Name: "n01"}, &own); err != nil || own.Status != m.status {
		t.Errorf("it says %+v, %v", own.Status, err)
	}
	version := own.ResourceVersion
	testutil.Reconcile(t, m)
	if err := w.Get(t.Context(), client.ObjectKey{Name: "n01"}, &own); err != nil || own.ResourceVersion != version {
		t.Errorf("it says so again: %v", err)
	}

	n := testutil.Node(1)
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses[1].Address = "192.0.2.100"
	if err := w.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	testutil.Reconcile(t, m)
	if restart == nil || !strings.Contains(restart.Error(), "192.0.2.100") {
		t.Errorf("its address has changed: %v", restart)
	}
}
