package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/coroutine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
)

// This file has the simulator's operations on keys, and its side of ops.Move. It is the counterpart
// of keys.go in package controller, and uses the real directory. There is only one chain, so a key
// moves within it, to another KEY_ID and another slot. For all participants that is the same as a
// move to another chain.
//
// Clients know a key by its name. The history uses the first KEY_ID as the name. A name's KEY_IDs
// have numbers, in the order of their creation. The history's versions are composed (composed), so
// that a version of a later KEY_ID is above all versions of earlier KEY_IDs. Nobody may see a
// version of an earlier KEY_ID after a version of a later KEY_ID.

// mostIncarnations limits how many KEY_IDs a name can have, because a composed version has 6 bits
// for the KEY_ID's number.
const mostIncarnations = 60

// composed returns a version in a form that is comparable across all KEY_IDs of a name.
func (w *World) composed(id wire.Key, v wire.Version) wire.Version {
	if v.Epoch() >= 1<<(judge.ComposedShift-48) {
		panic("a run has more epochs than a composed version can tell")
	}
	return v + wire.Version(w.Incarnations[id].Number)<<judge.ComposedShift
}

// expected returns the version for a CAS under a KEY_ID. It returns 0 if the last version that was
// seen belongs to another KEY_ID.
func (w *World) expected(id wire.Key, v wire.Version) (own, composed wire.Version) {
	if int(v>>judge.ComposedShift) != w.Incarnations[id].Number {
		return 0, 0
	}
	return v & (1<<judge.ComposedShift - 1), v
}

// saveDirectory makes the present directory durable, after a while. Then it reports the moves that
// have ended in the directory as durable, even if the controller has been killed. The directory is
// durable when the file is renamed and the folder is synced. A power cut in between may undo the
// renaming.
func (s *Shell) saveDirectory(then func(error)) {
	w := s.World
	s.countKeys()
	saved := &savedDirectory{s.dir.Snapshot(), slices.Clone(s.finished)}
	took := storeReads
	if w.Moving {
		took = w.Control.Between(50*time.Microsecond, time.Millisecond)
	}
	s.savedAt = max(s.savedAt, w.Loop.Now+took/2)
	w.Loop.At(s.savedAt, func() {
		var err error
		if w.Store.leader == s.election || w.Without.StoreCompare {
			w.Store.settle()
			w.Store.Renamed = saved
		} else {
			err = errLeader
		}
		w.Loop.After(took/4, func() {
			if w.Store.Renamed == saved {
				w.Store.settle()
			}
		})
		s.Later(took/2, func() {
			if then != nil {
				then(err)
				s.Flush()
			}
		})
	})
}

// operate starts an operation on keys. It returns a function that waits, in a task, for the
// operation's end. That function abandons the operation when the context ends.
func (s *Shell) operate(o *operation,
	begin func(*chain.Machine, chain.Time, chain.OpID)) (wait func(context.Context) error) {
	s.lastOp++
	id := s.lastOp
	s.operations[id] = o
	over, tell := false, func(error) {}
	var result error
	then := o.done
	o.done = func(err error) {
		over, result = true, err
		if then != nil {
			then(err)
		}
		tell(err)
	}
	begin(s.Machine, s.Clock(), id)
	s.Flush()
	return func(ctx context.Context) error {
		if over {
			return result
		}
		err := s.process.Await(ctx, func(done func(error)) { tell = done })
		if !over && err != nil && !errors.Is(err, coroutine.ErrOver) {
			s.World.Cover.Count("controller.operation given up", 1)
			s.Machine.AbandonKeys(s.Clock(), id, err)
			s.Flush()
			return result
		}
		return err
	}
}

// countKeys tells the machine the number of the chain's keys.
func (s *Shell) countKeys() {
	n := s.dir.Count(shapes.ChainID)
	if n == 0 {
		s.ops.Equality.Emptied(shapes.ChainID)
	}
	s.Machine.SetKeys(n)
}

// AddKeys places keys without values, under their names.
func (s *Shell) AddKeys(names []wire.Key) {
	o := newOperation(nil)
	for _, name := range names {
		var id *wire.Key
		if name == shapes.SharedKey {
			id = &name
		}
		k, err := s.dir.Add(shapes.ChainID, shapes.NameOf(name), id)
		Must(err)
		if k.ID != name {
			panic(fmt.Sprintf("the directory gave %v the KEY_ID %v", name, k.ID))
		}
		s.World.Incarnations[k.ID] = judge.Incarnation{Name: name, Number: 0}
		o.Keys, o.Values = append(o.Keys, k), append(o.Values, nil)
	}
	o.noted = func(key wire.Key, call time.Duration, version wire.Version) {
		s.World.History.Add(judge.Call{Client: s.Name, Key: key, Op: wire.Write, Places: true, Del: true, Begin: call,
			End: s.World.Loop.Now, Outcome: judge.Done, Version: version})
	}
	s.keysDone(o, true)
	s.countKeys()
	s.World.Store.setDirectory(s.dir.Snapshot())
	s.operate(o, (*chain.Machine).AddKeys)
}

// undoUnfinished reverts the operations that an earlier controller did not finish.
func (s *Shell) undoUnfinished() {
	back, out := ops.Unfinished(s.dir, shapes.ChainID)
	for _, k := range back {
		s.World.Cover.Count("controller.put back", 1)
		ops.Reattach(&mover{Runtime: s.runtime(false), Shell: s}, k)
	}
	for _, k := range out {
		s.removeKey(k)
	}
}

// keysDone records the end of an addition or a removal in the directory, and saves it.
func (s *Shell) keysDone(o *operation, add bool) {
	s.begun[o] = true
	o.done = func(err error) {
		delete(s.begun, o)
		_, _, undo := o.Ended(s.dir, add, err)
		s.saveDirectory(nil)
		for _, k := range undo {
			s.removeKey(k)
		}
	}
}

func (s *Shell) removeKey(k keyspace.Key) {
	o := newOperation(nil, k)
	s.keysDone(o, false)
	// For clients that know a key, removing the key is a deletion. The controller may write a
	// tombstone several times, and may get no answer to some of the writes.
	if told := (k.State == keyspace.Placed || k.State == keyspace.Removing) && !k.Leftover() &&
		k.Name == k.FinalName(); told {
		name := s.World.Incarnations[k.ID].Name
		at := 0
		o.sent = func(call time.Duration) {
			at = len(s.World.History.Ops)
			s.World.History.Add(judge.Call{Client: s.Name, Key: name, Op: wire.Write, Del: true, Begin: call,
				End: s.World.Loop.Now, Outcome: judge.Unknown, Why: errTimeout})
		}
		o.noted = func(key wire.Key, call time.Duration, version wire.Version) {
			s.World.History.Ops[at] = judge.Call{Client: s.Name, Key: name, Op: wire.Write, Del: true, Begin: call,
				End: s.World.Loop.Now, Outcome: judge.Done, Version: s.World.composed(key, version)}
		}
	}
	s.dir.SetState(k.ID, keyspace.Removing)
	o.Keys[0], _ = s.dir.ByID(k.ID)
	s.saveDirectory(func(err error) {
		if err == nil {
			s.operate(o, (*chain.Machine).RemoveKeys)
		}
	})
}

// Move moves a key, if its state allows it.
func (s *Shell) Move(name wire.Key) {
	k, ok := s.dir.ByName(shapes.NameOf(name))
	if !ok || k.State != keyspace.Placed || s.tidying[k.ID] || s.Clock() < 2*Leading ||
		s.World.lastIncarnation(name) >= mostIncarnations || len(s.dir.Chain(shapes.ChainID)) > MaxSlots-2 {
		return
	}
	k = s.dir.StartMove(k.ID)
	s.World.slotsSaid[k.ID] = &slotSaid{moved: true}
	s.World.Trace("operator", "moves %v, which is %v, alias %v", name, k.ID, k.Alias)
	s.process.Start(func(ctx context.Context) error {
		_, err := ops.Move(ctx, &mover{Runtime: s.runtime(false), Shell: s, name: name}, k, takePatience)
		return err
	}, func(error) {})
}

// takePatience is the longest time that a key may be unavailable during a move.
const takePatience = 300 * time.Millisecond

// mover is an ops.Keeper. It moves a key within its only chain.
type mover struct {
	coroutine.Runtime
	*Shell
	name  wire.Key
	moved *judge.Call // the write by Place, which nobody may see before the move is on record
	to    wire.Key    // the name's KEY_ID after the move; 0 while it is not known yet
}

// Directory implements ops.Keeper.
func (m *mover) Directory() *keyspace.Directory { return m.dir }

// Operate implements ops.Keeper.
func (m *mover) Operate(k keyspace.Key, begin func(*chain.Machine, chain.Time, chain.OpID),
	end func(error)) ops.Waiting {
	o := newOperation(nil, k)
	o.done = end
	wait := m.operate(o, begin)
	return func(ctx context.Context) ([]byte, wire.Version, error) {
		err := wait(ctx)
		return o.Values[0], o.Version(0), err
	}
}

// Place implements ops.Keeper.
func (m *mover) Place(ctx context.Context, name string, value []byte) (keyspace.Key, error) {
	id := m.freeID()
	to, err := m.dir.Add(shapes.ChainID, name, id)
	m.rememberIDs()
	if err != nil {
		return to, err
	}
	m.World.Incarnations[to.ID] = judge.Incarnation{Name: m.name, Number: m.World.lastIncarnation(m.name) + 1}
	m.World.placing(to.ID, value)
	o := newOperation(value, to)
	o.noted = func(_ wire.Key, call time.Duration, version wire.Version) {
		if m.moved == nil {
			m.moved = &judge.Call{Client: m.Shell.Name, Key: m.name, Op: wire.Write, Move: true, Value: string(value),
				Del: value == nil, Begin: call, Outcome: judge.Done, Version: m.World.composed(to.ID, version),
				Under: m.World.under(to.ID)}
		}
		// the controller may repeat its write after a change of the chain
		m.moved.Version = max(m.moved.Version, m.World.composed(to.ID, version))
	}
	m.keysDone(o, true)
	if err := m.Save(ctx); err != nil {
		delete(m.begun, o)
		return to, err
	}
	err = m.operate(o, (*chain.Machine).AddKeys)(ctx)
	return to, cmp.Or(err, o.Err(0))
}

// FinishMove implements ops.Keeper.
func (m *mover) FinishMove(from, to wire.Key, last wire.Version) (now, left keyspace.Key, err error) {
	m.to = to
	left = m.dir.FinishMove(from, to, last)
	m.finished = append(m.finished, m)
	now, _ = m.dir.ByID(to)
	return now, left, nil
}

// durable notes that the move is on record. From then on clients learn the new KEY_ID.
func (m *mover) durable() {
	i := slices.Index(m.finished, m)
	if i < 0 {
		return // the move was reported already, because several saved directories can contain it
	}
	m.finished = slices.Delete(m.finished, i, i+1)
	m.moved.End = m.World.Loop.Now
	m.World.History.Add(*m.moved)
	m.World.Cover.Count("controller.moved", 1)
	m.World.Trace("store", "%v is %v now", m.name, m.to)
}

// Remove implements ops.Keeper.
func (m *mover) Remove(k keyspace.Key) { m.removeKey(k) }

// Save implements ops.Keeper.
func (m *mover) Save(ctx context.Context) error {
	return m.process.Await(ctx, m.saveDirectory)
}

// SaveSoon implements ops.Keeper.
func (m *mover) SaveSoon() { m.saveDirectory(nil) }

// Stays implements ops.Keeper.
func (m *mover) Stays(k keyspace.Key, why error) {
	m.World.Cover.Count("controller.put back", 1)
	m.World.Trace(m.Shell.Name, "%s stays: %v", k.Name, why)
}

// freeID and rememberIDs are for a mutant whose directory reuses KEY_IDs. For a moment, the
// directory forgets which KEY_IDs were used. freeID returns the lowest KEY_ID that is not in use.
func (s *Shell) freeID() *wire.Key {
	if !s.World.Without.SameID {
		return nil
	}
	now := s.dir.Snapshot()
	s.next = now.Next
	s.newDirectory(keyspace.Snapshot{Keys: now.Keys, Next: map[uint8]uint32{shapes.ChainID: 1}})
	for n := uint32(1); ; n++ {
		id := wire.MakeKey(shapes.ChainID, n)
		if !slices.ContainsFunc(now.Keys, func(k keyspace.Key) bool { return k.ID == id || k.Alias == id }) {
			return &id
		}
	}
}

func (s *Shell) rememberIDs() {
	if s.World.Without.SameID {
		s.newDirectory(keyspace.Snapshot{Keys: s.dir.Snapshot().Keys, Next: s.next})
	}
}

func (s *Shell) newDirectory(saved keyspace.Snapshot) {
	var err error
	s.dir, err = keyspace.New([]keyspace.Space{{Chain: shapes.ChainID, Count: MaxSlots}}, saved)
	Must(err)
}

// drain reads the values of an operation's keys once all members agree on them.
func (s *Shell) drain(a chain.DrainKeys) {
	s.work(a.Op, a.Attempt, func(ctx context.Context, o *operation) error {
		if s.World.Without.Drainless { // this mutant reads only the tail
			ctx, cancel := s.ops.WithTimeout(ctx, ops.FetchTimeout)
			defer cancel()
			r, err := s.Device(a.Members[len(a.Members)-1]).other.Fetch(ctx, o.Keys[0].Alias, 0, 0)
			if err == nil && !r.Tombstone {
				o.Values[0] = append([]byte{}, r.Value...)
			}
			return err
		}
		values, versions, _, err := s.ops.Drain(ctx, a, o.Keys)
		if err == nil {
			o.Drained(values, versions)
		}
		return err
	})
}

// Moves moves keys during the whole run.
func (w *World) Moves() {
	d := w.Dice.Faults
	w.Loop.After(d.Between(3*time.Millisecond, 40*time.Millisecond), w.Moves)
	if !w.Mended && w.Serving() {
		w.Controller().Move(clockwork.Pick(d, w.Keys...))
	}
}

// lookup asks the directory for a key's KEY_ID.
func (c *Client) lookup(name wire.Key, then func(id wire.Key)) {
	w := c.w
	w.Loop.After(w.Dice.Clients.Between(100*time.Microsecond, time.Millisecond), func() {
		if !c.Alive {
			return
		}
		for _, k := range w.Store.Dir.Keys {
			if k.Name == shapes.NameOf(name) && k.Alias == 0 && k.State == keyspace.Placed {
				then(k.ID)
				return
			}
		}
		c.lookup(name, then)
	})
}

// under returns a KEY_ID's number among the KEY_IDs of its name.
func (w *World) under(id wire.Key) int { return w.Incarnations[id].Number }

// TakeOut removes a key that clients use.
func (s *Shell) TakeOut(name wire.Key) {
	k, ok := s.dir.ByName(shapes.NameOf(name))
	if !ok || k.State != keyspace.Placed || s.tidying[k.ID] || s.Clock() < 2*Leading ||
		s.World.lastIncarnation(name) >= mostIncarnations {
		return
	}
	s.World.Cover.Count("fault.key removed", 1)
	s.World.Trace("operator", "removes %v, which is %v", name, k.ID)
	s.removeKey(k)
}

// Place places a key that is not in the network, under a new KEY_ID.
func (s *Shell) Place(name wire.Key) {
	w := s.World
	if _, ok := s.dir.ByName(shapes.NameOf(name)); ok || w.lastIncarnation(name) >= mostIncarnations ||
		len(s.dir.Chain(shapes.ChainID)) > MaxSlots-2 {
		return
	}
	k, err := s.dir.Add(shapes.ChainID, shapes.NameOf(name), nil)
	if err != nil { // cannot happen, because no run is long enough to use up the KEY_IDs
		if len(w.Contradicted) == 0 {
			w.Contradicted = append(w.Contradicted, judge.Violation{Kind: judge.UsedUp, Key: name, What: err.Error()})
		}
		return
	}
	w.Incarnations[k.ID] = judge.Incarnation{Name: name, Number: w.lastIncarnation(name) + 1}
	w.placing(k.ID, nil)
	w.Trace("operator", "places %v again, as %v", name, k.ID)
	o := newOperation(nil, k)
	o.noted = func(key wire.Key, call time.Duration, version wire.Version) {
		w.History.Add(judge.Call{Client: s.Name, Key: name, Op: wire.Write, Places: true, Del: true, Begin: call,
			End: w.Loop.Now, Outcome: judge.Done, Version: w.composed(key, version), Under: w.under(key)})
	}
	s.keysDone(o, true)
	s.saveDirectory(func(err error) {
		if err == nil {
			s.operate(o, (*chain.Machine).AddKeys)
		}
	})
}

// lastIncarnation returns the highest number of a name's KEY_IDs.
func (w *World) lastIncarnation(name wire.Key) (last int) {
	for _, i := range w.Incarnations {
		if i.Name == name {
			last = max(last, i.Number)
		}
	}
	return last
}

// Placed reports whether the store's directory says that the key with the given name is placed.
func (w *World) Placed(name wire.Key) bool {
	for _, k := range w.Store.Dir.Keys {
		if k.Name == shapes.NameOf(name) && k.State == keyspace.Placed {
			return true
		}
	}
	return false
}
