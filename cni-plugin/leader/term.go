package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Term is the time during which this agent leads. While there is a chain to control, the term has a
// controller.
type Term struct {
	o    *Options
	term *leadership.Term
	ctx  context.Context
	end  context.CancelCauseFunc
	// Recorded has the members of each chain when the last leader ended.
	Recorded map[string][]string
	// Inherited has chains of an earlier leader in which gateways look for etcd keys. Chains that
	// are not wanted any more must be emptied.
	Inherited map[string]v1alpha1.NetcraqChainSpec

	hosting sync.Mutex // held while the controller is replaced

	mu      sync.Mutex
	hosted  *Hosted
	leaving map[string]bool // chains that must not hold any of etcd's keys
}

// Hosted is the controller that runs in this process.
type Hosted struct {
	*leadership.Server
	Profile int // profile of the controller's program, which is the value width in bits
	stop    func()
}

// etcdWait is the timeout of a request to etcd.
const etcdWait = 10 * time.Second

func newTerm(ctx context.Context, o *Options, term *leadership.Term) (*Term, error) {
	state, err := term.Elected.Load()
	if err != nil {
		return nil, fmt.Errorf("the chains' state: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("a folder for the program: %w", err)
	}
	r := &Term{o: o, term: term, Recorded: map[string][]string{},
		Inherited: map[string]v1alpha1.NetcraqChainSpec{}}
	if state != nil {
		for name, record := range state.Chains {
			r.Recorded[name] = record.Config.Members
		}
		entries, err := r.Placed(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if record, ok := state.Chains[e.Chain]; ok {
				r.Inherited[e.Chain] = v1alpha1.NetcraqChainSpec{ID: int32(wire.Key(e.ID).Chain()),
					LeaseMillis: int32(record.Config.Lease / time.Millisecond)}
			}
		}
	}
	r.ctx, r.end = context.WithCancelCause(ctx)
	return r, nil
}

// Placed returns the etcd keys that gateways look for in the network.
func (r *Term) Placed(ctx context.Context) (map[string]placement.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	entries, _, _, err := placement.Store{KV: r.term.Etcd, Prefix: r.o.GatewayPrefix}.List(ctx)
	return entries, err
}

// ProgramDir returns the folder for the program that the controller loads.
func (r *Term) ProgramDir() string { return r.o.Dir }

// Context returns a context that ends with the term.
func (r *Term) Context() context.Context { return r.ctx }

// Hosted returns the current controller, or nil if there is none.
func (r *Term) Hosted() *Hosted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hosted
}

func (r *Term) setHosted(h *Hosted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosted = h
}

// Leave makes the placement take its keys out of these chains.
func (r *Term) Leave(chains map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = maps.Clone(chains)
}

// IsLeaving reports whether the placement must take its keys out of a chain.
func (r *Term) IsLeaving(chain string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving[chain]
}

// Host makes the controller control a network. If t is nil, it ends the controller.
func (r *Term) Host(t *topology.Topology, profile int) error {
	r.hosting.Lock()
	defer r.hosting.Unlock()
	if r.ctx.Err() != nil && t != nil {
		return context.Cause(r.ctx)
	}
	hosted := r.Hosted()
	if hosted != nil && (t == nil || hosted.Profile != profile) {
		r.setHosted(nil)
		hosted.stop()
		hosted = nil
	}
	if t == nil {
		return nil
	}
	if hosted != nil {
		return hosted.Controller.Update(r.ctx, t)
	}
	s, err := leadership.New(r.term, leadership.Options{Topology: t, TLS: r.o.TLS, Replica: r.o.Replica, Log: r.o.Log,
		Placement: &leadership.Placement{Prometheus: r.o.Prometheus, Window: r.o.HeatWindow, Prefix: r.o.GatewayPrefix,
			Limits: policy.DefaultLimits(), Leaving: r.IsLeaving}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); errors.Is(err, leadership.ErrDeposed) {
			r.end(err)
		}
	})
	wg.Go(func() { r.o.Follow(ctx, s.Controller) })
	r.o.Metrics(s.Controller.Registry())
	r.setHosted(&Hosted{Server: s, Profile: profile, stop: func() {
		cancel()
		r.o.Metrics(nil)
		wg.Wait() // the controller's writes to etcd must come before those of the next controller
	}})
	return nil
}

// close ends the term and its controller.
func (r *Term) close() {
	r.end(errors.New("the term is over"))
	_ = r.Host(nil, 0) // ending the controller cannot fail
}
