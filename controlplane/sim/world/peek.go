package world

import (
	"errors"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// This file causes faults while a key is being placed. A client guesses the key's KEY_ID, which is
// easy because KEY_IDs count up, and reads it before the directory publishes it. The chain may also
// get another head while the first write is in flight.

// peeks holds the guesses of a run, and their parameters.
type peeks struct {
	clockwork.Dice
	judge.Guesses
	often  float64
	reader *Client
}

// In some runs, Curious makes a client guess KEY_IDs.
func (w *World) Curious(seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DicePeek)
	w.Peeks.Dice, w.Peeks.often = d, clockwork.Pick(d, 0, 0.5)
	if w.Peeks.often > 0 {
		w.Peeks.reader = w.NewClient("peeker", clockwork.Pick(d, w.Shape.Friends()...), 0, nil)
	}
}

// placing notes that a key is being placed. Call it when the KEY_ID is assigned.
func (w *World) placing(id wire.Key, value []byte) {
	p := &w.Peeks
	if value != nil {
		p.Moved[id] = string(value)
	}
	if !p.Chance(p.often) {
		return
	}
	for range 4 + p.IntN(8) {
		w.Loop.After(p.About(2*time.Millisecond), func() {
			if !w.Mended {
				w.peek(id)
			}
		})
	}
}

// peek reads a KEY_ID at some switch.
func (w *World) peek(id wire.Key) {
	p, c := &w.Peeks, w.Peeks.reader
	req := calls.Request{Op: wire.Read, Key: id, Eventual: p.Chance(0.3), Deadline: w.Loop.Now + 5*time.Millisecond,
		To: []netip.AddrPort{Address(clockwork.Pick(p.Dice, w.Nodes...))}}
	of := w.Incarnations[id]
	op := judge.Call{Client: c.Name, Key: of.Name, ID: id, Under: of.Number, Op: wire.Read,
		Eventual: req.Eventual, Begin: w.Loop.Now}
	w.Cover.Count("calls.guessed KEY_ID", 1)
	c.begin(&call{op: op, req: req, peeks: true})
}

// peeked records the answer to a guess.
func (w *World) peeked(k *call, r calls.Result) {
	var e *calls.OpError
	if errors.As(r.Err, &e) && !errors.Is(e, calls.ErrNotFound) {
		return
	}
	k.op.End = w.Loop.Now
	take(&k.op, r)
	if k.op.Version == 0 {
		return // the guess got no answer
	}
	w.Cover.Count("calls.guessed KEY_ID answered", 1)
	w.told(k.op.Client, k, k.op.Version)
	k.op.Version = w.composed(k.req.Key, k.op.Version)
	w.Peeks.Ops = append(w.Peeks.Ops, k.op)
	if w.tracing() {
		w.TraceKey(k.op.Key, w.Peeks.reader.Name, "%v: %s: %s", k.req.Key, k.op.Request(), k.op.Result())
	}
}

// headChange is the probability that the chain gets another head during a key's first write.
const headChange = 0.25

// firstWrite replaces the head of the chain, or removes it, soon after the controller sends a key's
// first write. It returns how long the packet of the first write waits in the switch.
func (w *World) firstWrite(s *Shell) (wait time.Duration) {
	d := w.Disorder.Dice
	if !w.Disorder.Apart || w.Mended || !d.Chance(headChange) {
		return 0
	}
	w.Loop.After(d.Between(0, 3*time.Millisecond), func() {
		if w.Mended || s != w.Controller() || !w.Serving() {
			return
		}
		members := s.Status.Config.Members
		head := w.Node(members[0])
		switch {
		case len(members) < 2:
		case d.Chance(0.5):
			w.Trace("operator", "%s is no longer to be the head", head.Name)
			w.Cover.Count("fault.another head for a first write", 1)
			s.Propose(chain.Change{Members: append(append([]string{}, members[1:]...), head.Name)})
		case w.Spare(head):
			w.Trace("operator", "%s is no longer to be a member", head.Name)
			w.Cover.Count("fault.another head for a first write", 1)
			s.Propose(chain.Change{Members: append([]string{}, members[1:]...)})
		}
	})
	return d.Between(0, 100*time.Millisecond)
}
