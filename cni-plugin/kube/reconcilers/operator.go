// Package reconcilers runs on agents that may lead. The leading agent brings the cluster into the
// state that its resources describe. Operator has what all reconcilers share. Each of them is in a
// file of its own and asks the packages that decide: nodeclaims, netplan and chainplan. setup.go
// puts all of it together.
package reconcilers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

const (
	// restless is the time between two looks at what is under way, restful at what is not.
	restless = time.Second
	restful  = 15 * time.Second
	// What failed is tried again after retryAfter, and later each time, up to restful. A step that
	// a chain could not take, which may have cost it an epoch, waits up to stepAtMost.
	retryAfter = time.Second
	stepAtMost = time.Minute
	// chainsAtOnce is how many chains' members are changed at the same time.
	chainsAtOnce = 8
)

// Operator is an agent that may lead, and reconciles the cluster's objects while it does:
//
//	Node, NetcraqNode ──▶ NodeIndexes    a node's index
//	ServiceAccount ─────▶ fastpath       whether its pods may use the fast path
//	all of them ────────▶ network        what the controller is told of (one for all)
//	                        │ plan
//	NetcraqChain ───────────┼──▶ chains      finalizer, status
//	                        ├──▶ membership  a chain's next step, or emptying it
//	                        └──▶ keyChoices  pins and exclusions (one for all)
type Operator struct {
	o        Options
	log      *slog.Logger
	client   client.Client
	recorder record.EventRecorder
	leader   *leader.Leader
	pods     podLists
	nodes    *leaderlink.Answerer // of what the nodes' agents ask the controller
	fast     *fastpath.Reconciler
	leftOut  *prometheus.CounterVec
	replica  adminserver.Replica

	// Reasons to run the reconcilers other than a changed object.
	network, chains, membership, keyChoices, nodeIndexes, accounts apiobjects.Waker

	mu   sync.Mutex
	term *term // of the present term; nil: this agent does not lead

	serving sync.WaitGroup // the admin API
}

// Start implements manager.Runnable: when it is this agent's turn, it leads until ctx ends.
func (p *Operator) Start(ctx context.Context) error {
	defer p.serving.Wait()
	return p.leader.Start(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: this has the election.
func (p *Operator) NeedLeaderElection() bool { return false }

// began has everything looked at, because nothing was until now.
func (p *Operator) began() {
	for _, w := range []*apiobjects.Waker{&p.network, &p.nodeIndexes, &p.accounts} {
		w.Retry()
	}
}

// leading is the present term; nil: this agent does not lead.
func (p *Operator) leading() *term {
	t := p.leader.Term()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t == nil || t.Context().Err() != nil {
		p.term = nil
	} else if p.term == nil || p.term.Term != t {
		p.term = &term{Term: t, recorded: maps.Clone(t.Recorded), inherited: maps.Clone(t.Inherited),
			back: rejoin.New(rejoin.Default()), began: time.Now()}
	}
	return p.term
}

// planned are the chains that there is a plan for.
func (p *Operator) planned(context.Context) []reconcile.Request {
	t := p.leading()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return apiobjects.Named(slices.Collect(maps.Keys(t.plan)))
}

// of returns the plan for a chain.
func (t *term) of(chain string) (chainplan.Plan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.plan[chain]
	return p, ok
}

// inChain says about which nodes chains need the switches yet; nil: this agent does not lead.
func (p *Operator) inChain(ctx context.Context) (func(node string) bool, error) {
	t := p.leading()
	if t == nil {
		return nil, nil
	}
	var list v1alpha1.NetcraqChainList
	if err := p.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the chains: %w", err)
	}
	now, _, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	load := t.load(names, now)
	return func(node string) bool { return load[node] > 0 }, nil
}

// podLists are the pods of all nodes, as their agents list them: a follower.
type podLists interface {
	Follow(ctx context.Context, agents map[string]string)
	Alive(node string) bool
	All() (pods map[string][]netplan.Pod, wrong nodeclaims.Faults)
}
