package node

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Instance is a live instance of a service.
type Instance = nodeapi.Instance

// Named sets the name of an instance of a service. Without this option, the server chooses a random
// name.
func Named(instance string) Option { return Option{kind: optInstance, text: instance} }

// Nearest puts the instances on the program's own node first.
func Nearest() Option { return Option{kind: optNearest} }

// Registration is an instance of a service. The client keeps it registered until Deregister.
type Registration struct {
	c    *Client
	o    options
	data nodeapi.ServiceData
	ctx  context.Context
	stop context.CancelFunc

	// a channel of capacity 1 that the goroutine that registers or deregisters fills
	turn  chan struct{}
	mu    sync.Mutex
	lease *lease // nil if the caller provided the lease
	over  bool
}

// RegisterService registers an instance of a service at an address, host:port. If its lease is
// lost, the client registers it again under the same name. Options: Named, TTL, WithLease.
func (c *Client) RegisterService(ctx context.Context, service, address string, opts ...Option) (*Registration, error) {
	if err := checkKey(nodeapi.FuncRegisterService, service); err != nil {
		return nil, err
	}
	o := gather(opts)
	r := &Registration{c: c, o: o, turn: make(chan struct{}, 1), data: nodeapi.ServiceData{Namespace: o.namespace,
		Service: service, Instance: o.instance, Address: address, Lease: o.lease}}
	r.ctx, r.stop = context.WithCancel(c.ctx)
	if err := r.register(ctx); err != nil {
		r.stop()
		return nil, err
	}
	c.mu.Lock()
	c.held[r] = struct{}{}
	c.mu.Unlock()
	return r, nil
}

func (r *Registration) register(ctx context.Context) error {
	c, data := r.c, r.data
	var l *lease
	if r.o.lease == "" {
		var err error
		if l, err = c.lease(ctx, &r.o); err != nil {
			return err
		}
		data.Lease = l.id
	}
	a, err := askFor[Instance](ctx, c, nodeapi.FuncRegisterService, data, func(k *call) { k.changes = true })
	if err != nil {
		if l != nil {
			l.drop()
		}
		return err
	}
	r.mu.Lock()
	if a.Instance != "" {
		r.data.Instance = a.Instance
	}
	r.lease = l
	r.mu.Unlock()
	if l != nil {
		l.whenLost(func(error) { c.background(r.again) })
	}
	return nil
}

// again registers the instance again, until the registration succeeds.
func (r *Registration) again() {
	for pause := firstPause; r.ctx.Err() == nil; pause = min(2*pause, maxPause) {
		r.turn <- struct{}{}
		var err error
		if r.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(r.c.ctx, r.c.cfg.Timeout)
			err = r.register(ctx)
			cancel()
		}
		<-r.turn
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
		}
	}
}

// Instance returns the instance's name.
func (r *Registration) Instance() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data.Instance
}

// Lease returns the lease to which the instance is bound. It changes if the client registers the
// instance again.
func (r *Registration) Lease() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease != nil {
		return r.lease.id
	}
	return r.o.lease
}

// Deregister removes the instance. If that fails, the instance expires within its time to live.
func (r *Registration) Deregister(ctx context.Context) error {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return nil
	}
	r.over = true
	r.mu.Unlock()
	r.stop()
	r.turn <- struct{}{} // if a registration is under way, this waits at most as long as a call
	defer func() { <-r.turn }()
	r.mu.Lock()
	l, instance := r.lease, r.data.Instance
	r.mu.Unlock()
	r.c.mu.Lock()
	delete(r.c.held, r)
	r.c.mu.Unlock()
	_, err := askFor[struct{}](ctx, r.c, nodeapi.FuncDeregisterService,
		nodeapi.ServiceData{Namespace: r.data.Namespace, Service: r.data.Service, Instance: instance, Lease: r.Lease()},
		func(k *call) { k.changes, k.urgent = true, true })
	switch {
	case l == nil:
	case err == nil:
		l.free()
	default:
		l.drop()
	}
	return err
}

func (r *Registration) giveBack(ctx context.Context) error { return r.Deregister(ctx) }

// GetService returns the live instances of a service. Each call begins the list with a different
// instance. Options: Nearest.
func (c *Client) GetService(ctx context.Context, service string, opts ...Option) ([]Instance, error) {
	if err := checkKey(nodeapi.FuncGetService, service); err != nil {
		return nil, err
	}
	o := gather(opts)
	data := nodeapi.GetServiceData{Namespace: o.namespace, Service: service}
	if o.nearest {
		data.Order = "nearest"
	}
	a, err := askFor[nodeapi.ServiceAnswer](ctx, c, nodeapi.FuncGetService, data, nil)
	if err != nil {
		return nil, err
	}
	return a.Instances, nil
}
