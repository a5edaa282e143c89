package world

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/coroutine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// opsTarget is an ops.Target, by which a controller accesses a switch. It also disables rules of
// the procedures that a mutant removes.
type opsTarget struct {
	*Device
	copying bool // the target is for procedures that copy
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
func (t *opsTarget) Connection() int { return t.Number }

// Send implements ops.Target.
func (t *opsTarget) Send(p *wire.Packet) error {
	again := *p
	if t.Shell.World.Without.RedriveSession {
		again.Session, again.Request = 0, 0
	}
	if t.Shell.World.Without.RedriveEpoch {
		again.Epoch = t.Shell.Status.Config.Epoch
	}
	t.packetOut(t.Shell.frame(t.Device, leasePort, &again))
	return t.Err()
}

// Open implements ops.Target.
func (t *opsTarget) Open() (ops.Port, error) {
	t.Shell.port++
	x := &exchange{opsTarget: t, port: t.Shell.port}
	t.Shell.waiting[x.port] = x
	return x, nil
}

// Cells implements ops.Target.
func (t *opsTarget) Cells(ctx context.Context, name string, cells []int) ([][]byte, error) {
	w := t.Shell.World
	out := make([][]byte, len(cells))
	err := t.Shell.process.Await(ctx, func(done func(error)) {
		n := len(cells)
		if t.Node.NoRegisters {
			n = 0
		}
		t.read(n, func(i int) {
			b, err := t.Node.Pipeline.ReadRegister(Register(name), cells[i])
			Must(err)
			out[i] = bytes.Clone(b)
		}, done)
	})
	switch {
	case err != nil:
		return nil, err
	case t.Node.NoRegisters:
		w.Cover.Count("controller.registers not shown", 1)
		return nil, ops.ErrUnsupported
	}
	w.Cover.Count("controller.registers read", 1)
	if name == "versions" {
		t.mistake(cells, out)
	}
	return out, nil
}

// mistake applies the mutants' mistakes to versions that were read. The first half of each cell is
// the committed version, and the second half is the latest version.
func (t *opsTarget) mistake(cells []int, out [][]byte) {
	r := &t.Shell.World.Without
	for i, b := range out {
		if r.CleanCells || r.CopyNewest && t.copying {
			copy(b[8:], b[:8])
		}
		if r.StaleHeld && t.copying {
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
		t.call(step{Reads, "keys", func() { ids = slices.Sorted(maps.Keys(t.Node.KeyIndex)) }}, then)
	})
	return ids, err
}

// WriteEntries implements ops.Target.
func (t *opsTarget) WriteEntries(ctx context.Context, insert bool, entries []ops.Entry) error {
	return t.job(ctx, func(then func(error)) { t.writeEntries(insert, entries, then) })
}

// job runs do at the switch after all earlier jobs, and waits until do has ended.
func (t *opsTarget) job(ctx context.Context, do func(then func(error))) error {
	return t.Shell.process.Await(ctx, func(then func(error)) {
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
	task    *coroutine.Task // the task that waits for a reply
	replies []*wire.Packet
}

// Send implements ops.Port.
func (x *exchange) Send(p *wire.Packet) error {
	again := *p
	if x.Shell.World.Without.CopyNewest && x.copying && p.Flags == wire.Newest && p.Op == wire.Fetch {
		again.Flags = 0
	}
	x.sent = p
	if p.Op == wire.CAS {
		x.Shell.writes(p)
		if x.Shell.World.Without.BlindWrites {
			again.Op, again.Version = wire.Write, 0
		}
	}
	if p.Op == wire.Write || p.Op == wire.CAS {
		x.waits = x.Shell.World.firstWrite(x.Shell)
	}
	if x.Shell.World.Without.HeardForEver && x.Shell.knows(p) {
		x.deliver(&wire.Packet{Op: wire.SyncReply, Key: p.Key, Session: p.Session})
		return x.Err()
	}
	x.packetOut(x.Shell.frame(x.Device, x.port, &again))
	return x.Err()
}

// knows reports whether a packet tells a switch about one of the controller's sessions that the
// chain already knows.
func (s *Shell) knows(p *wire.Packet) bool {
	if p.Op != wire.Sync || p.Flags&wire.Newest == 0 || p.Session > ControllerSessions {
		return false
	}
	at, ok := s.toldAt[p.Session]
	if !ok {
		s.toldAt[p.Session] = s.World.Loop.Now
	}
	return ok && s.World.Loop.Now > at+ops.FetchTimeout
}

// deliver handles a reply.
func (x *exchange) deliver(r *wire.Packet) {
	if r.Op == wire.WriteReply && x.Shell.World.Without.BlindWrites {
		r.Op = wire.CASReply
	}
	if r.Op == wire.CASReply && x.sent != nil {
		x.Shell.wrote(x.sent, r)
	}
	if x.Shell.World.Without.RedriveEpoch && r.Op == wire.FetchReply && !x.copying {
		r.Epoch = x.Shell.redriving
	}
	x.replies = append(x.replies, r)
	if x.task != nil {
		x.task.Wake()
	}
}

// Receive implements ops.Port.
func (x *exchange) Receive(ctx context.Context, d time.Duration) (*wire.Packet, error) {
	w := x.Shell.World
	if len(x.replies) == 0 {
		x.task = w.tasks.Running()
		err := x.task.Wait(ctx.(*coroutine.Span), w.Loop.Now+max(d, 1))
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
func (x *exchange) Close() { delete(x.Shell.waiting, x.port) }
