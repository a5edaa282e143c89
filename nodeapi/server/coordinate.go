package server

import (
	"context"
	"errors"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// ownLeases returns the Owner with the leases of this connection. They end with the connection.
func (c *conn) ownLeases() *coordination.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner == nil && !c.dead {
		o := c.s.coordination.NewOwner()
		c.owner = o
		go func() {
			select {
			case <-o.Lost():
				// End the connection. So the client knows that the leases, and everything bound to
				// them, are lost.
				c.cutOff("lease lost")
			case <-c.ctx.Done():
			}
			o.Close()
		}()
	}
	return c.owner
}

func grant(ctx context.Context, k *call, d *nodeapi.GrantData) (any, error) {
	return at(ctx, k, d.Namespace, *d, k.c.s.coordination.Grant)
}

func keepAlive(ctx context.Context, k *call, d *nodeapi.LeaseData) (any, error) {
	return at(ctx, k, d.Namespace, *d, k.c.s.coordination.KeepAlive)
}

func revoke(ctx context.Context, k *call, d *nodeapi.LeaseData) (any, error) {
	return at(ctx, k, d.Namespace, *d, nothing(k.c.s.coordination.Revoke))
}

func lock(ctx context.Context, k *call, d *nodeapi.LockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, own(k, d.Lease, k.c.s.coordination.Lock))
}

func unlock(ctx context.Context, k *call, d *nodeapi.UnlockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, nothing(k.c.s.coordination.Unlock))
}

func campaign(ctx context.Context, k *call, d *nodeapi.LockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, own(k, d.Lease, k.c.s.coordination.Campaign))
}

func resign(ctx context.Context, k *call, d *nodeapi.UnlockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, nothing(k.c.s.coordination.Resign))
}

func leader(ctx context.Context, k *call, d *nodeapi.LeaderData) (any, error) {
	return at(ctx, k, d.Namespace, *d, k.c.s.coordination.Leader)
}

func acquire(ctx context.Context, k *call, d *nodeapi.LockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, own(k, d.Lease, k.c.s.coordination.Acquire))
}

func release(ctx context.Context, k *call, d *nodeapi.UnlockData) (any, error) {
	return at(ctx, k, d.Namespace, *d, nothing(k.c.s.coordination.Release))
}

func registerService(ctx context.Context, k *call, d *nodeapi.ServiceData) (any, error) {
	return at(ctx, k, d.Namespace, *d, own(k, d.Lease, k.c.s.coordination.RegisterService))
}

func deregisterService(ctx context.Context, k *call, d *nodeapi.ServiceData) (any, error) {
	return at(ctx, k, d.Namespace, *d,
		own(k, "", func(ctx context.Context, ns string, o *coordination.Owner, d nodeapi.ServiceData) (struct{}, error) {
			return struct{}{}, k.c.s.coordination.DeregisterService(ctx, ns, o, d)
		}))
}

func getService(ctx context.Context, k *call, d *nodeapi.GetServiceData) (any, error) {
	return at(ctx, k, d.Namespace, *d, k.c.s.coordination.GetService)
}

func watchService(ctx context.Context, k *call, d *nodeapi.GetServiceData) (any, error) {
	ns, err := k.place(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	if d.Order != "" {
		return nil, rpc.Invalid("watchService has no order: each answer has all instances")
	}
	return nil, k.c.s.coordination.WatchService(ctx, ns, d.Service, func(a nodeapi.ServiceAnswer) { k.more(ctx, &a) })
}

func grantStays(ctx context.Context, k *call, d *nodeapi.GrantData, a *nodeapi.LeaseAnswer) error {
	return stays(ctx, k, d.Namespace, func(ns string) error { return k.c.s.coordination.LeaseStays(ctx, ns, a.Lease) })
}

func keepAliveStays(ctx context.Context, k *call, d *nodeapi.LeaseData, a *nodeapi.LeaseAnswer) error {
	return stays(ctx, k, d.Namespace, func(ns string) error { return k.c.s.coordination.LeaseStays(ctx, ns, a.Lease) })
}

func lockStays(ctx context.Context, k *call, d *nodeapi.LockData, a *nodeapi.LockAnswer) error {
	return stays(ctx, k, d.Namespace, func(ns string) error {
		return k.c.s.coordination.LockStays(ctx, ns, k.c.ownLeases(), *d, *a)
	})
}

func leadershipStays(ctx context.Context, k *call, d *nodeapi.LockData, a *nodeapi.LockAnswer) error {
	return stays(ctx, k, d.Namespace, func(ns string) error {
		return k.c.s.coordination.LeadershipStays(ctx, ns, k.c.ownLeases(), *d, *a)
	})
}

func permitStays(ctx context.Context, k *call, d *nodeapi.LockData, a *nodeapi.LockAnswer) error {
	return stays(ctx, k, d.Namespace, func(ns string) error {
		return k.c.s.coordination.PermitStays(ctx, ns, k.c.ownLeases(), *d, *a)
	})
}

func registrationStays(ctx context.Context, k *call, d *nodeapi.ServiceData, a *nodeapi.Instance) error {
	return stays(ctx, k, d.Namespace, func(ns string) error {
		return k.c.s.coordination.RegistrationStays(ctx, ns, k.c.ownLeases(), *d, *a)
	})
}

// stays checks whether an answer about a namespace is still true, if the caller has the right to
// know. If stays cannot determine this, it returns an error that says only that the request was
// executed.
func stays(ctx context.Context, k *call, ns string, look func(ns string) error) error {
	ns, err := k.place(ctx, ns)
	if err != nil {
		return err
	}
	err = look(ns)
	if err == nil || errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeLeaseGone}) ||
		errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeNotHeld}) {
		return err
	}
	return nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "send it again with the same \"once\"",
		"it was executed before; whether its lease is there still could not be read: %v", err)
}

// at calls a function for a namespace, if the caller has the right to use the namespace.
func at[D, A any](ctx context.Context, k *call, ns string, d D,
	do func(context.Context, string, D) (A, error)) (any, error) {
	ctx, ns, err := k.placeToWrite(ctx, ns)
	if err != nil {
		return nil, err
	}
	answer, err := do(coordination.WithHolder(ctx, k.c.peer), ns, d)
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// nothing adapts a function whose answer is {}.
func nothing[D any](do func(context.Context, string, D) error) func(context.Context, string, D) (struct{}, error) {
	return func(ctx context.Context, ns string, d D) (struct{}, error) { return struct{}{}, do(ctx, ns, d) }
}

// own adapts a function that uses a lease of the connection if the request names no lease.
func own[D, A any](k *call, lease string,
	do func(context.Context, string, *coordination.Owner, D) (A, error)) func(context.Context, string, D) (A, error) {
	return func(ctx context.Context, ns string, d D) (A, error) {
		var o *coordination.Owner
		if lease == "" {
			o = k.c.ownLeases()
		}
		return do(ctx, ns, o, d)
	}
}
