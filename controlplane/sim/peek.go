package sim

import (
	"errors"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// What happens while a key is being placed. Somebody who guesses its KEY_ID (they count up) reads
// it, before the directory tells it to anybody; and the chain gets another head while the first
// write is on its way.

// peeks are the guesses of a run, and how they are made.
type peeks struct {
	dice
	guesses
	often  float64
	reader *client
}

// curious has KEY_IDs guessed, in some runs.
func (w *world) curious(seed uint64) {
	d := newDice(seed, dicePeek)
	w.peeks.dice, w.peeks.often = d, pick(d, 0, 0.5)
	if w.peeks.often > 0 {
		w.peeks.reader = w.newClient("peeker", pick(d, w.shape.friends()...), 0, nil)
	}
}

// placing notes that a key is being placed, from when its KEY_ID is given.
func (w *world) placing(id wire.Key, value []byte) {
	p := &w.peeks
	if value != nil {
		p.moved[id] = string(value)
	}
	if !p.chance(p.often) {
		return
	}
	for range 4 + p.IntN(8) {
		w.loop.after(p.about(2*time.Millisecond), func() {
			if !w.mended {
				w.peek(id)
			}
		})
	}
}

// peek reads a KEY_ID at some switch.
func (w *world) peek(id wire.Key) {
	p, c := &w.peeks, w.peeks.reader
	req := core.Request{Op: wire.Read, Key: id, Eventual: p.chance(0.3), Deadline: w.loop.now + 5*time.Millisecond,
		To: []netip.AddrPort{address(pick(p.dice, w.nodes...))}}
	of := w.incarnations[id]
	op := operationOf{client: c.name, key: of.name, id: id, under: of.number, op: wire.Read,
		eventual: req.Eventual, call: w.loop.now}
	w.cover.add("calls.guessed KEY_ID", 1)
	c.begin(&call{op: op, req: req, peeks: true})
}

// peeked notes what a peek was told.
func (w *world) peeked(k *call, r core.Result) {
	var e *core.OpError
	if errors.As(r.Err, &e) && !errors.Is(e, core.ErrNotFound) {
		return
	}
	k.op.end = w.loop.now
	k.op.take(r)
	if k.op.version == 0 {
		return // no answer
	}
	w.cover.add("calls.guessed KEY_ID answered", 1)
	w.told(k.op.client, k, k.op.version)
	k.op.version = w.composed(k.req.Key, k.op.version)
	w.peeks.ops = append(w.peeks.ops, k.op)
	if w.tracing() {
		w.traceKey(k.op.key, w.peeks.reader.name, "%v: %s: %s", k.req.Key, k.op.request(), k.op.result())
	}
}

// headChange is how often the chain gets another head when a key is written first.
const headChange = 0.25

// firstWrite has the chain get another head, or be without the one that it has, soon after a write
// of the controller's is sent to it. It is for how long that packet waits in the switch.
func (w *world) firstWrite(s *shell) (wait time.Duration) {
	d := w.disorder.dice
	if !w.disorder.apart || w.mended || !d.chance(headChange) {
		return 0
	}
	w.loop.after(d.between(0, 3*time.Millisecond), func() {
		if w.mended || s != w.controller() || !w.serving() {
			return
		}
		members := s.status.Config.Members
		head := w.node(members[0])
		switch {
		case len(members) < 2:
		case d.chance(0.5):
			w.trace("operator", "%s is no longer to be the head", head.name)
			w.cover.add("fault.another head for a first write", 1)
			s.propose(chain.Change{Members: append(append([]string{}, members[1:]...), head.name)})
		case w.spare(head):
			w.trace("operator", "%s is no longer to be a member", head.name)
			w.cover.add("fault.another head for a first write", 1)
			s.propose(chain.Change{Members: append([]string{}, members[1:]...)})
		}
	})
	return d.between(0, 100*time.Millisecond)
}
