package reconcilers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
	"github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
	"github.com/netcraq/netcraq/controlplane/placement/placementcontroller"
)

// term is the state of the reconcilers during a term in which this agent leads.
type term struct {
	*leader.Term

	mu        sync.Mutex
	plan      map[string]chainplan.Plan            // plans by chain name; nil until the network reconciler has run
	recorded  map[string][]string                  // like Term.Recorded, without deleted chains
	inherited map[string]v1alpha1.NetcraqChainSpec // like Term.Inherited, without chains that run again
	back      *rejoin.Tracker                      // tracks when switches that are not members return
	began     time.Time                            // when the term started
}

// look asks the controller, if there is one, for the state of the chains and for the ready
// switches.
func (t *term) look(ctx context.Context) (chains []admin.Chain, ready map[string]bool, err error) {
	h := t.Hosted()
	if h == nil {
		return nil, nil, nil
	}
	if chains, err = h.Controller.Chains(ctx); err != nil {
		return nil, nil, err
	}
	switches, err := h.Controller.Switches(ctx)
	if err != nil {
		return nil, nil, err
	}
	ready = map[string]bool{}
	for _, s := range switches {
		if s.Ready {
			ready[s.Name] = true
		}
	}
	return chains, ready, nil
}

// chainNamed returns the chain with a name, or nil.
func chainNamed(chains []admin.Chain, name string) *admin.Chain {
	if i := slices.IndexFunc(chains, func(c admin.Chain) bool { return c.Name == name }); i >= 0 {
		return &chains[i]
	}
	return nil
}

// members returns a chain's current members, or its last known members. It returns nil if the chain
// was never formed.
func (t *term) members(chain string, now []admin.Chain) []string {
	if c := chainNamed(now, chain); c != nil {
		var out []string
		for _, m := range c.Members {
			out = append(out, m.Switch)
		}
		return out
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.recorded[chain]
}

// load returns, for each switch, the number of these chains that it is a member of.
func (t *term) load(chains []string, now []admin.Chain) map[string]int {
	load := map[string]int{}
	for _, name := range chains {
		for _, m := range t.members(name, now) {
			load[m]++
		}
	}
	return load
}

// inherits reports whether gateways use a chain of an earlier leader that this leader does not run
// yet.
func (t *term) inherits(chain string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.inherited[chain]
	return ok
}

// emptied reports whether a chain that is to be removed holds no keys, and no gateway looks for a
// key there. If the controller ended earlier, no one could take the keys out, and gateways would
// wait for that. left has the remaining keys, except for etcd's keys, which the placement removes
// in the right order.
func (t *term) emptied(ctx context.Context, chain string) (empty bool, left []admin.Key, err error) {
	h := t.Hosted()
	if h == nil {
		return false, nil, errors.New("there is no controller")
	}
	keys, err := h.Controller.Keys(ctx, chain)
	if err != nil {
		return false, nil, err
	}
	entries, err := t.Placed(ctx)
	if err != nil {
		return false, nil, err
	}
	for _, e := range entries {
		if e.Chain == chain {
			return false, nil, nil // the placement is just removing the chain's keys
		}
	}
	left = slices.DeleteFunc(slices.Clone(keys), func(k admin.Key) bool {
		// The placement is about to make a directory entry, or has just deleted it.
		return strings.HasPrefix(k.Name, placementcontroller.DirectoryName(""))
	})
	return len(keys) == 0, left, nil
}
