package switches

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// target is an ops.Target.
type target struct{ *Device }

// Err implements ops.Target.
func (t target) Err() error {
	if t.Client.State().Phase != p4rt.Primary {
		return ErrNotConnected
	}
	return nil
}

// Connection implements ops.Target.
func (t target) Connection() int { return t.Client.State().Stream }

// Send implements ops.Target.
func (t target) Send(p *wire.Packet) error { return t.sendFrom(leasePort, p) }

// sendFrom sends a packet whose replies go to a given port.
func (d *Device) sendFrom(port uint16, p *wire.Packet) error {
	frame, err := d.frame(port, p)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// Open implements ops.Target.
func (t target) Open() (ops.Port, error) {
	port, replies, err := t.requests.open(t.Device)
	return &exchange{t.Device, port, replies}, err
}

// exchange is an ops.Port.
type exchange struct {
	*Device
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
func (e *exchange) Close() { e.requests.close(e.port) }

// Cells implements ops.Target.
func (t target) Cells(ctx context.Context, register string, cells []int) ([][]byte, error) {
	values, err := t.Client.ReadRegisterCells(ctx, register, cells)
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
		err := t.Read(ctx)
		ids = slices.Collect(maps.Keys(t.KeyEntries(chain)))
		return err
	})
	return ids, err
}

// WriteEntries implements ops.Target.
func (t target) WriteEntries(ctx context.Context, insert bool, entries []ops.Entry) error {
	return t.job(ctx, func(ctx context.Context) error {
		if err := t.Read(ctx); err != nil {
			return err
		}
		return t.WriteKeys(ctx, insert, entries)
	})
}
