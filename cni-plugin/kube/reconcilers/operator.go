// Package reconcilers runs on agents that may lead. The leading agent brings the cluster into the
// state that its resources describe. Operator has what all reconcilers share. Each reconciler has
// its own file and calls the packages that decide: nodeclaims, netplan and chainplan. setup.go
// connects all of them.
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
	// restless is the interval between checks of unfinished work. restful is the interval between
	// all other checks.
	restless = time.Second
	restful  = 15 * time.Second
	// retryAfter is the time before failed work is retried. Later intervals grow up to restful. A
	// failed step of a chain may have cost an epoch. So its intervals grow up to stepAtMost.
	retryAfter = time.Second
	stepAtMost = time.Minute
	// chainsAtOnce is the maximum number of chains whose members change concurrently.
	chainsAtOnce = 8
)

// Operator is the part of an agent that may lead. While it leads, it reconciles the cluster's
// objects:
//
//	Node, NetcraqNode ──▶ NodeIndexes    a node's index
//	ServiceAccount ─────▶ fastpath       whether its pods may use the fast path
//	all of them ────────▶ network        the controller's network (one object for all)
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
	nodes    *leaderlink.Answerer // answers the requests that agents send to the controller
	fast     *fastpath.Reconciler
	leftOut  *prometheus.CounterVec
	replica  adminserver.Replica

	// These Wakers wake reconcilers for reasons other than a changed object.
	network, chains, membership, keyChoices, nodeIndexes, accounts apiobjects.Waker

	mu   sync.Mutex
	term *term // current term; nil if this agent does not lead

	serving sync.WaitGroup // waits for the end of serving the admin API
}

// Start implements manager.Runnable. Until ctx ends, it leads whenever this agent is the leader.
func (p *Operator) Start(ctx context.Context) error {
	defer p.serving.Wait()
	return p.leader.Start(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because the
// Operator runs the election itself.
func (p *Operator) NeedLeaderElection() bool { return false }

// began wakes all reconcilers at the beginning of a term, because they do nothing between terms.
func (p *Operator) began() {
	for _, w := range []*apiobjects.Waker{&p.network, &p.nodeIndexes, &p.accounts} {
		w.Retry()
	}
}

// leading returns the current term, or nil if this agent does not lead.
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

// planned returns requests for the chains that have a plan.
func (p *Operator) planned(context.Context) []reconcile.Request {
	t := p.leading()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return apiobjects.Named(slices.Collect(maps.Keys(t.plan)))
}

// of returns the plan for a chain, if there is one.
func (t *term) of(chain string) (chainplan.Plan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.plan[chain]
	return p, ok
}

// inChain returns a function that reports whether a chain still needs a node's switch. It returns
// nil if this agent does not lead.
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

// podLists has the pods of all nodes, as the nodes' agents list them. A PodFollower implements it.
type podLists interface {
	Follow(ctx context.Context, agents map[string]string)
	Alive(node string) bool
	All() (pods map[string][]netplan.Pod, wrong nodeclaims.Faults)
}
