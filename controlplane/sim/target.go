package sim

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// opsTarget is an ops.Target: a switch, as a controller reaches it. Here the rules are taken away
// that are those of procedures.
type opsTarget struct {
	*device
	copying bool // for what copies
	seen    map[int][]byte
}

// Err implements ops.Target.
func (t *opsTarget) Err() error {
	if !t.connected {
		return errConnection
	}
	return nil
}

// Connection implements ops.Target.
func (t *opsTarget) Connection() int { return t.number }

// Send implements ops.Target.
func (t *opsTarget) Send(p *wire.Packet) error {
	again := *p
	if t.s.w.removed.redriveSession {
		again.Session, again.Request = 0, 0
	}
	if t.s.w.removed.redriveEpoch {
		again.Epoch = t.s.status.Config.Epoch
	}
	t.packetOut(t.s.frame(t.device, leasePort, &again))
	return t.Err()
}

// Open implements ops.Target.
func (t *opsTarget) Open() (ops.Port, error) {
	t.s.port++
	x := &exchange{opsTarget: t, port: t.s.port}
	t.s.waiting[x.port] = x
	return x, nil
}

// Cells implements ops.Target.
func (t *opsTarget) Cells(ctx context.Context, name string, cells []int) ([][]byte, error) {
	w := t.s.w
	out := make([][]byte, len(cells))
	err := t.s.await(ctx, func(done func(error)) {
		n := len(cells)
		if t.n.noRegisters {
			n = 0
		}
		t.read(n, func(i int) {
			b, err := t.n.p.ReadRegister(register(name), cells[i])
			must(err)
			out[i] = bytes.Clone(b)
		}, done)
	})
	switch {
	case err != nil:
		return nil, err
	case t.n.noRegisters:
		w.cover.add("controller.registers not shown", 1)
		return nil, ops.ErrUnsupported
	}
	w.cover.add("controller.registers read", 1)
	if name == "versions" {
		t.mistake(cells, out)
	}
	return out, nil
}

// mistake makes the mistakes that mutants make with versions that were read: the first half of each
// is what is committed, the second the latest.
func (t *opsTarget) mistake(cells []int, out [][]byte) {
	r := &t.s.w.removed
	for i, b := range out {
		if r.cleanCells || r.copyNewest && t.copying {
			copy(b[8:], b[:8])
		}
		if r.staleHeld && t.copying {
			if was := t.seen[cells[i]]; bytes.Compare(was, b) > 0 {
				copy(b, was)
			}
			t.seen[cells[i]] = bytes.Clone(b)
		}
	}
}

// Keys implements ops.Target.
func (t *opsTarget) Keys(ctx context.Context, chain uint8) (ids []wire.Key, err error) {
	err = t.job(ctx, func(then func(error)) {
		t.call(step{reads, "keys", func() { ids = slices.Sorted(maps.Keys(t.n.keyIndex)) }}, then)
	})
	return ids, err
}

// WriteEntries implements ops.Target.
func (t *opsTarget) WriteEntries(ctx context.Context, insert bool, entries []ops.Entry) error {
	return t.job(ctx, func(then func(error)) { t.writeEntries(insert, entries, then) })
}

// job has something done at the switch, after all that was asked for before, and waits for it.
func (t *opsTarget) job(ctx context.Context, do func(then func(error))) error {
	return t.s.await(ctx, func(then func(error)) {
		t.submit(func(done func()) {
			do(func(err error) {
				then(err)
				done()
			})
		})
	})
}

// exchange is an ops.Port.
type exchange struct {
	*opsTarget
	port    uint16
	sent    *wire.Packet
	task    *task // waits for a reply
	replies []*wire.Packet
}

// Send implements ops.Port.
func (x *exchange) Send(p *wire.Packet) error {
	again := *p
	if x.s.w.removed.copyNewest && x.copying && p.Flags == wire.Newest && p.Op == wire.Fetch {
		again.Flags = 0
	}
	x.sent = p
	if p.Op == wire.CAS {
		x.s.writes(p)
		if x.s.w.removed.blindWrites {
			again.Op, again.Version = wire.Write, 0
		}
	}
	if p.Op == wire.Write || p.Op == wire.CAS {
		x.waits = x.s.w.firstWrite(x.s)
	}
	if x.s.w.removed.heardForEver && x.s.knows(p) {
		x.deliver(&wire.Packet{Op: wire.SyncReply, Key: p.Key, Session: p.Session})
		return x.Err()
	}
	x.packetOut(x.s.frame(x.device, x.port, &again))
	return x.Err()
}

// knows says whether a packet tells a switch of one of the controller's sessions that the chain was
// told of before.
func (s *shell) knows(p *wire.Packet) bool {
	if p.Op != wire.Sync || p.Flags&wire.Newest == 0 || p.Session > controllerSessions {
		return false
	}
	at, ok := s.toldAt[p.Session]
	if !ok {
		s.toldAt[p.Session] = s.w.loop.now
	}
	return ok && s.w.loop.now > at+ops.FetchTimeout
}

// deliver takes a reply.
func (x *exchange) deliver(r *wire.Packet) {
	if r.Op == wire.WriteReply && x.s.w.removed.blindWrites {
		r.Op = wire.CASReply
	}
	if r.Op == wire.CASReply && x.sent != nil {
		x.s.wrote(x.sent, r)
	}
	if x.s.w.removed.redriveEpoch && r.Op == wire.FetchReply && !x.copying {
		r.Epoch = x.s.redriving
	}
	x.replies = append(x.replies, r)
	if x.task != nil {
		x.task.wake()
	}
}

// Receive implements ops.Port.
func (x *exchange) Receive(ctx context.Context, d time.Duration) (*wire.Packet, error) {
	w := x.s.w
	if len(x.replies) == 0 {
		x.task = w.running
		err := x.task.wait(ctx.(*span), w.loop.now+max(d, 1))
		x.task = nil
		if len(x.replies) == 0 {
			return nil, err
		}
	}
	r := x.replies[0]
	x.replies = x.replies[1:]
	return r, nil
}

// Close implements ops.Port.
func (x *exchange) Close() { delete(x.s.waiting, x.port) }
