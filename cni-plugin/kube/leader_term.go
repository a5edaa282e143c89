package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/kubernetes/v1alpha1"
	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/controlplane/controller"
	placementcontroller "github.com/netcraq/netcraq/controlplane/placement/controller"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/controlplane/server"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// leaderTerm is the time for which this agent leads. The controller is there when there is a chain to be controlled.
type leaderTerm struct {
	l    *leader
	term *server.Term
	ctx  context.Context
	end  context.CancelCauseFunc
	dir  string // with the program, for the controller
	// recorded are the members of chains as an earlier leader left them.
	recorded map[string][]string
	// inherited are chains of an earlier leader in which gateways look for keys of etcd's. Where nobody wants them any more they have to be emptied.
	inherited map[string]v1alpha1.NetcraqChainSpec

	mine    sync.Mutex // of all that follows, but for what has a lock of its own
	hosted  *hosted
	failed  logOnce // with the network
	program topology.ProgramSpec
	leftOut int                  // pods that are no hosts
	without int                  // nodes without a number
	since   map[string]time.Time // when a chain was first waited with
	steady  map[string]time.Time // since when a switch has been ready
	shown   map[string]shown     // statuses as they were last written

	mu      sync.Mutex
	busy    map[string]bool     // chains with a step under way
	backoff map[string]*backoff // of steps, by the chain's name
	leaving map[string]bool     // chains that are to hold none of etcd's keys
	trials  probation
}

// hosted is the controller of this process.
type hosted struct {
	c       *controller.Controller
	rules   *rules
	profile int
	stop    func()
}

// etcdWait is how long a question to etcd may take.
const etcdWait = 10 * time.Second

// backoff is when a step that failed may be tried again.
type backoff struct {
	next  time.Time
	pause time.Duration
}

func newLeaderTerm(ctx context.Context, l *leader, term *server.Term) (*leaderTerm, error) {
	state, err := term.Elected.Load()
	if err != nil {
		return nil, fmt.Errorf("the chains' state: %w", err)
	}
	dir := filepath.Join(filepath.Dir(l.o.Socket), "program") // an agent in a container may have no other folder to write to
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("a folder for the program: %w", err)
	}
	r := &leaderTerm{l: l, term: term, dir: dir, recorded: map[string][]string{}, inherited: map[string]v1alpha1.NetcraqChainSpec{}, since: map[string]time.Time{}, steady: map[string]time.Time{},
		backoff: map[string]*backoff{}, shown: map[string]shown{}, busy: map[string]bool{}, trials: probation{}}
	if state != nil {
		for name, record := range state.Chains {
			r.recorded[name] = record.Config.Members
		}
		asking, cancel := context.WithTimeout(ctx, etcdWait)
		defer cancel()
		entries, _, _, err := placement.Store{KV: term.Etcd, Prefix: l.o.Lead.GatewayPrefix}.List(asking)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if record, ok := state.Chains[e.Chain]; ok {
				r.inherited[e.Chain] = v1alpha1.NetcraqChainSpec{ID: int32(wire.Key(e.ID).Chain()), LeaseMillis: int32(record.Config.Lease / time.Millisecond)}
			}
		}
	}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r, nil
}

// host has the controller control a network; nil: there is none to be controlled.
func (r *leaderTerm) host(t *topology.Topology, profile int) error {
	if r.hosted != nil && (t == nil || r.hosted.profile != profile) {
		r.hosted.stop()
		r.hosted = nil
	}
	if t == nil {
		return nil
	}
	if r.hosted != nil {
		return r.hosted.c.Update(r.ctx, t)
	}
	conf := r.l.tls
	if r.l.o.Fabric != nil {
		conf = nil // as its file says
	}
	o := r.l.o.Lead
	s, err := server.New(r.term, server.Options{Topology: t, TLS: conf, Replica: &r.l.replica, Log: r.l.log, Placement: &server.Placement{
		Prometheus: o.Prometheus, Window: o.HeatWindow, Prefix: o.GatewayPrefix, Limits: policy.DefaultLimits(), Leaving: r.isLeaving}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); errors.Is(err, server.ErrDeposed) {
			r.end(err)
		}
	})
	wg.Go(func() { r.follow(ctx, s.Controller) })
	r.l.health.lead(s.Controller.Registry())
	rules := &rules{placement: s.Placement, always: neverPlaced(r.l.o.Namespace), log: r.l.log}
	r.hosted = &hosted{c: s.Controller, rules: rules, profile: profile, stop: func() {
		cancel()
		r.l.health.lead(nil)
		wg.Wait() // what it writes to etcd must not come after what the next one writes
	}}
	return nil
}

// close ends the controller, too.
func (r *leaderTerm) close() {
	r.end(errors.New("the term is over"))
	r.mine.Lock()
	defer r.mine.Unlock()
	_ = r.host(nil, 0) // there is nothing that could fail
}

// do does something for a chain in the background, one thing at a time. What fails is tried again, later each time.
func (r *leaderTerm) do(chain, what string, f func(context.Context, *controller.Controller) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.backoff[chain]; r.busy[chain] || b != nil && time.Now().Before(b.next) {
		return
	}
	r.busy[chain] = true
	c := r.hosted.c
	go func() {
		err := f(r.ctx, c)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.busy, chain)
		if err == nil {
			delete(r.backoff, chain)
		} else {
			b := r.backoff[chain]
			if b == nil {
				b = &backoff{pause: time.Second}
				r.backoff[chain] = b
			}
			r.l.log.Warn("a step for a chain was not done; it is tried again", "chain", chain, "step", what, "err", err, "in", b.pause)
			b.next, b.pause = time.Now().Add(b.pause), min(2*b.pause, time.Minute)
		}
		r.l.soon()
	}()
}

// tryAnew has steps that failed tried again without waiting longer.
func (r *leaderTerm) tryAnew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.backoff)
}

// take takes a chain's next step.
func (r *leaderTerm) take(chain string, s *step) {
	var what string
	var f func(context.Context, *controller.Controller) error
	switch {
	case s.bringIn != "":
		what = "bringing in " + s.bringIn
		f = func(ctx context.Context, c *controller.Controller) error {
			before, err := c.Chain(ctx, chain)
			if err != nil {
				return err
			}
			_, err = c.Recover(ctx, chain, s.bringIn)
			if after, failed := c.Chain(ctx, chain); err == nil || failed != nil || after.Epoch != before.Epoch { // what was refused at once costs nothing
				r.mu.Lock()
				defer r.mu.Unlock()
				r.trials.tried(candidacy{chain, s.bringIn}, time.Now())
			}
			return err
		}
	case s.members != nil:
		what = fmt.Sprintf("members %v", s.members)
		f = func(ctx context.Context, c *controller.Controller) error {
			_, err := c.ChangeChain(ctx, chain, api.ChainChange{Members: &s.members})
			return err
		}
	default:
		what = fmt.Sprintf("a lease of %d ms", *s.lease)
		f = func(ctx context.Context, c *controller.Controller) error {
			_, err := c.ChangeChain(ctx, chain, api.ChainChange{LeaseMillis: s.lease})
			return err
		}
	}
	r.do(chain, what, f)
}

// drain empties a chain that is to go. Its keys of etcd's are taken out by the placement, which knows in which order; the others here. gone: there are none left, and no
// gateway looks for one there: were the controller to end before, nobody could take them out, and gateways would wait for that.
func (r *leaderTerm) drain(ctx context.Context, chain string) (gone bool, err error) {
	keys, err := r.hosted.c.Keys(ctx, chain)
	if err != nil {
		return false, err
	}
	asking, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	entries, _, _, err := placement.Store{KV: r.term.Etcd, Prefix: r.l.o.Lead.GatewayPrefix}.List(asking)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Chain == chain {
			return false, nil // the placement is at it
		}
	}
	if len(keys) == 0 {
		return true, nil
	}
	keys = slices.DeleteFunc(keys, func(k api.Key) bool { return strings.HasPrefix(k.Name, placementcontroller.DirectoryName("")) }) // it is about to make an entry, or has just deleted it
	if len(keys) == 0 {
		return false, nil
	}
	r.do(chain, "removing its keys", func(ctx context.Context, c *controller.Controller) error {
		for _, k := range keys {
			if err := c.RemoveKey(ctx, chain, strconv.FormatUint(uint64(k.KeyID), 10)); err != nil && !errors.Is(err, &api.Error{Code: api.CodeNotFound}) {
				return err
			}
		}
		return nil
	})
	return false, nil
}

// leave has the placement take its keys out of some chains.
func (r *leaderTerm) leave(chains map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = chains
}

func (r *leaderTerm) isLeaving(chain string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving[chain]
}

// members are those that a chain has, or had when it was last heard of; nil: it was never formed.
func (r *leaderTerm) members(chain string, now []api.Chain) []string {
	if i := slices.IndexFunc(now, func(c api.Chain) bool { return c.Name == chain }); i >= 0 {
		var out []string
		for _, m := range now[i].Members {
			out = append(out, m.Switch)
		}
		return out
	}
	return r.recorded[chain]
}

// settled says whether a switch has been ready for long enough to be brought into a chain; ready are those that are
// now.
func (r *leaderTerm) settled(ready map[string]bool) func(chain, node string) bool {
	for name := range r.steady {
		if !ready[name] {
			delete(r.steady, name)
		}
	}
	for name := range ready {
		if _, ok := r.steady[name]; !ok {
			r.steady[name] = time.Now()
		}
	}
	return func(chain, node string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		t, ok := r.steady[node]
		return ok && time.Since(t) >= r.trials.wait(candidacy{chain, node}, time.Now())
	}
}
