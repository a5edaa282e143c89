package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/admin"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// reign is the time for which this agent leads. The controller is there when there is a chain to be controlled.
type reign struct {
	l    *leader
	term *etcdstore.Term
	etcd *clientv3.Client
	ctx  context.Context
	end  context.CancelCauseFunc
	dir  string // with the program, for the controller
	// recorded are the members of chains as an earlier leader left them.
	recorded map[string][]string

	mine    sync.Mutex // of all that follows, but for what has a lock of its own
	hosted  *hosted
	leftOut int                  // pods that are no hosts
	since   map[string]time.Time // when a chain was first waited with
	steady  map[string]time.Time // since when a switch has been ready
	backoff map[string]*backoff  // of steps, by the chain's name
	shown   map[string]shown     // statuses as they were last written

	mu   sync.Mutex
	busy map[string]bool // chains with a step under way
}

// hosted is the controller of this process.
type hosted struct {
	c       *controller.Controller
	rules   *rules // nil: no keys of etcd's are placed
	profile int
	stop    func()
}

// backoff is when a step that failed may be tried again.
type backoff struct {
	next  time.Time
	pause time.Duration
}

func newReign(ctx context.Context, l *leader, term *etcdstore.Term, etcd *clientv3.Client) (*reign, error) {
	state, err := term.Load()
	if err != nil {
		return nil, fmt.Errorf("the chains' state: %w", err)
	}
	dir := filepath.Join(filepath.Dir(l.o.Socket), "program") // an agent in a container may have no other folder to write to
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("a folder for the program: %w", err)
	}
	r := &reign{l: l, term: term, etcd: etcd, dir: dir, recorded: map[string][]string{}, since: map[string]time.Time{}, steady: map[string]time.Time{},
		backoff: map[string]*backoff{}, shown: map[string]shown{}, busy: map[string]bool{}}
	if state != nil {
		for name, record := range state.Chains {
			r.recorded[name] = record.Config.Members
		}
	}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r, nil
}

// host has the controller control a network; nil: there is none to be controlled.
func (r *reign) host(t *topology.Topology, profile int) error {
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
	c, err := controller.New(controller.Options{Topology: t, Store: r.term, ElectionID: r.term.ElectionID(), Led: r.term.Led, Leading: etcdstore.Leading, TLS: r.l.tls, Log: r.l.log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	keys, err := r.placement(c)
	if err != nil {
		cancel()
		return err
	}
	var shown admin.Placement
	if keys != nil {
		shown = keys.placer
		wg.Go(func() { keys.placer.Run(ctx) })
	}
	wg.Go(func() { c.Run(ctx) })
	wg.Go(func() { r.follow(ctx, c) })
	go func() {
		select {
		case <-ctx.Done():
		case <-c.Deposed():
			r.end(errors.New("another controller has taken over at a switch"))
		}
	}()
	r.l.replica.Lead(c, shown)
	r.l.health.lead(c.Registry())
	r.hosted = &hosted{c: c, rules: keys, profile: profile, stop: func() {
		cancel()
		r.l.replica.StandBy("")
		r.l.health.lead(nil)
		wg.Wait() // what it writes to etcd must not come after what the next one writes
	}}
	return nil
}

// close ends the controller, too.
func (r *reign) close() {
	r.end(errors.New("the reign is over"))
	r.mine.Lock()
	defer r.mine.Unlock()
	_ = r.host(nil, 0) // there is nothing that could fail
}

// do carries out a chain's next step in the background, one at a time.
func (r *reign) do(chain string, s *step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.backoff[chain]; r.busy[chain] || b != nil && time.Now().Before(b.next) {
		return
	}
	r.busy[chain] = true
	c := r.hosted.c
	go func() {
		what, err := carryOut(r.ctx, c, chain, s)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.busy, chain)
		b := r.backoff[chain]
		switch {
		case err == nil:
			delete(r.backoff, chain)
		case b == nil:
			b = &backoff{pause: time.Second}
			r.backoff[chain] = b
			fallthrough
		default:
			b.next, b.pause = time.Now().Add(b.pause), min(2*b.pause, time.Minute)
			r.l.log.Warn("a step for a chain was not done; it is tried again", "chain", chain, "step", what, "err", err, "in", b.pause/2)
		}
		r.l.soon()
	}()
}

// carryOut does a step and waits for its end.
func carryOut(ctx context.Context, c *controller.Controller, chain string, s *step) (what string, err error) {
	switch {
	case s.bringIn != "":
		_, err = c.Recover(ctx, chain, s.bringIn)
		return "bringing in " + s.bringIn, err
	case s.members != nil:
		_, err = c.ChangeChain(ctx, chain, api.ChainChange{Members: &s.members})
		return fmt.Sprintf("members %v", s.members), err
	}
	_, err = c.ChangeChain(ctx, chain, api.ChainChange{LeaseMillis: s.lease})
	return fmt.Sprintf("a lease of %d ms", *s.lease), err
}

// members are those that a chain has, or had when it was last heard of; nil: it was never formed.
func (r *reign) members(chain string, now []api.Chain) []string {
	if i := slices.IndexFunc(now, func(c api.Chain) bool { return c.Name == chain }); i >= 0 {
		var out []string
		for _, m := range now[i].Members {
			out = append(out, m.Switch)
		}
		return out
	}
	return r.recorded[chain]
}

// settled says whether a switch has been ready for a while; ready are those that are now.
func (r *reign) settled(ready map[string]bool) func(string) bool {
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
	return func(name string) bool { t, ok := r.steady[name]; return ok && time.Since(t) >= settle }
}
