package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// What package ops is handed here: goroutines, the system's clock, and switches over P4Runtime.

// procedures makes the procedures of a chain.
func (c *Controller) procedures(ct *topology.Chain) *ops.Chain {
	return &ops.Chain{Runtime: goroutines{c.now}, ID: ct.ID, Pool: c.pool, Equality: &c.equality,
		Entry: func(k ops.Key) ops.Entry { return c.net().plan.entryOf(k) },
		// Those of the node API. Others are their users' own: a gateway takes what it has not
		// written for a forgery.
		Buries: func(k ops.Key) bool { return strings.HasPrefix(k.Name, nodeapi.KeyPrefix) },
		Switch: func(name string) (*ops.Switch, error) {
			d, err := c.device(name)
			if err != nil {
				return nil, err
			}
			return d.Switch, nil
		}}
}

// goroutines is an ops.Runtime.
type goroutines struct{ now func() chain.Time }

// Now implements ops.Runtime.
func (g goroutines) Now() time.Duration { return g.now() }

// Sleep implements ops.Runtime.
func (g goroutines) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// WithTimeout implements ops.Runtime.
func (g goroutines) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// ForEach implements ops.Runtime.
func (g goroutines) ForEach(ctx context.Context, n, window int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	free := make(chan struct{}, window)
	var wg sync.WaitGroup
	for i := range n {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// target is an ops.Target.
type target struct{ *device }

// Err implements ops.Target.
func (t target) Err() error {
	if t.client.State().Phase != p4rt.Primary {
		return errNotConnected
	}
	return nil
}

// Connection implements ops.Target.
func (t target) Connection() int { return t.client.State().Stream }

// Send implements ops.Target.
func (t target) Send(p *wire.Packet) error { return t.sendFrom(leasePort, p) }

// sendFrom sends a packet whose replies come to a port.
func (d *device) sendFrom(port uint16, p *wire.Packet) error {
	frame, err := d.c.frame(d.sw, d.sw.Address, port, p)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// Open implements ops.Target.
func (t target) Open() (ops.Port, error) {
	port, replies, err := t.c.requests.open(t.device)
	return &exchange{t.device, port, replies}, err
}

// exchange is an ops.Port.
type exchange struct {
	*device
	port    uint16
	replies chan *wire.Packet
}

// Send implements ops.Port.
func (e *exchange) Send(p *wire.Packet) error { return e.sendFrom(e.port, p) }

// Receive implements ops.Port.
func (e *exchange) Receive(ctx context.Context, d time.Duration) (*wire.Packet, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-e.replies:
		return r, nil
	case <-timer.C:
		return nil, nil
	}
}

// Close implements ops.Port.
func (e *exchange) Close() { e.c.requests.close(e.port) }

// Cells implements ops.Target.
func (t target) Cells(ctx context.Context, register string, cells []int) ([][]byte, error) {
	values, err := t.client.ReadRegisterCells(ctx, register, cells)
	if p4rt.IsUnsupported(err) {
		return nil, errors.Join(ops.ErrUnsupported, err)
	}
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out, err
}

// Keys implements ops.Target.
func (t target) Keys(ctx context.Context, chain uint8) (ids []wire.Key, err error) {
	err = t.job(ctx, func(ctx context.Context) error {
		err := t.read(ctx)
		ids = slices.Collect(maps.Keys(t.slotsOf(chain)))
		return err
	})
	return ids, err
}

// WriteEntries implements ops.Target.
func (t target) WriteEntries(ctx context.Context, insert bool, entries []ops.Entry) error {
	return t.job(ctx, func(ctx context.Context) error {
		if err := t.read(ctx); err != nil {
			return err
		}
		return t.writeKeys(ctx, insert, entries)
	})
}

// job has the worker do something, and waits for it. What the worker has not begun when nobody
// waits for it any more is not done.
func (d *device) job(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	d.submit(func(worker context.Context) {
		if ctx.Err() == nil {
			done <- do(worker)
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readIn is read in a certain connection: what a chain asks of a switch, it asks of the switch that
// it has judged. What comes back in the next connection may be empty.
func (d *device) readIn(ctx context.Context, stream int) error {
	if d.client.State().Stream != stream {
		return fmt.Errorf("%s was connected anew meanwhile: %w", d.sw.Name, errNotConnected)
	}
	return d.read(ctx)
}
