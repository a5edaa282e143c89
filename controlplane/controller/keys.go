package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// stateTimeout bounds one read of a key when a person waits for the result. Clients wait 2 s.
const stateTimeout = time.Second

// keyOperation adds or removes some keys of a chain. chain.Machine decides on the steps, and
// keyOperation carries them out.
type keyOperation struct {
	id  chain.OpID
	add bool
	ops.Writes
	cancel context.CancelFunc
	// If finish is set, keysDone calls it instead of its own work for additions and removals.
	finish func(error)
	done   chan struct{} // closed when the operation ends; err is valid then
	given  error         // why the caller stopped waiting; nil: it has not stopped
	err    error         // the error of the operation as a whole
}

// addition is the result of addKeys for one key.
type addition struct {
	key keyspace.Key
	err error
}

// newKey describes a key to be added.
type newKey struct {
	name  string
	id    *wire.Key
	value []byte // nil: no value; the key reads NOT_FOUND until a client writes it
	// The function may returns the reason why the key must not be added, or nil if there is none.
	// It is called in the same step as the addition to the directory.
	may func() error
	// maker names the requester, whose number of keys is limited. It is "" for a requester without
	// a limit.
	maker string
}

// addKeys places keys: it records them in the directory, makes hidden entries tail first, sends
// the first writes through the chain, and opens the entries. It returns when that is done for all
// keys. If ctx ends first, addKeys undoes it.
func (c *Controller) addKeys(ctx context.Context, chainName string, keys []newKey) ([]addition, error) {
	if err := c.knowKeys(ctx, chainName); err != nil {
		return nil, err
	}
	out := make([]addition, len(keys))
	var op *keyOperation
	var ch *chainState
	var failed error
	var at []int // index in keys of each of the operation's keys
	err := c.call(ctx, func() {
		if ch, failed = c.findChain(chainName); failed != nil {
			return
		}
		if failed = c.inCharge(); failed != nil {
			return
		}
		op = &keyOperation{id: c.nextOp(), add: true, done: make(chan struct{})}
		for i, k := range keys {
			if len(k.value) > c.prog.Profile.ValueBytes() {
				out[i].err = fmt.Errorf("%w: the value of %q has %d bytes, and the switches hold %d",
					keyspace.ErrInvalid, k.name, len(k.value), c.prog.Profile.ValueBytes())
				continue
			}
			if k.may != nil {
				if out[i].err = k.may(); out[i].err != nil {
					continue
				}
			}
			if out[i].key, out[i].err = c.dir.AddFor(k.maker, ch.topo.ID, k.name, k.id); out[i].err == nil {
				op.Keys = append(op.Keys, out[i].key)
				op.Values = append(op.Values, k.value)
				at = append(at, i)
			}
		}
		if len(op.Keys) == 0 {
			op = nil
			return
		}
		c.startOperation(ch, op)
		c.save(func(err error) {
			if err = errors.Join(err, op.given); err != nil {
				c.keysDone(ch, op, err) // the machine has not carried out any step
				return
			}
			c.touch(ch).AddKeys(c.now(), op.id)
		})
	})
	if err != nil || failed != nil || op == nil {
		return out, errors.Join(err, failed)
	}
	if err := c.await(ctx, ch, op); errors.Is(err, errStopped) {
		return out, err
	}
	for n, i := range at {
		out[i].err = cmpErr(op.err, op.Err(n))
		out[i].key.State = keyspace.Placed
	}
	return out, c.call(context.WithoutCancel(ctx), func() {
		for _, i := range at {
			// read the key again, to get its versions
			if k, ok := c.dir.ByID(out[i].key.ID); ok && out[i].err == nil {
				out[i].key = k
			}
		}
	})
}

// await waits for an operation to end, and abandons it when ctx ends.
func (c *Controller) await(ctx context.Context, ch *chainState, op *keyOperation) error {
	select {
	case <-op.done:
	case <-ctx.Done():
		c.post(func() {
			op.given = fmt.Errorf("given up: %w", context.Cause(ctx))
			c.touch(ch).AbandonKeys(c.now(), op.id, op.given)
		})
	case <-c.stopped:
	}
	select {
	case <-op.done:
		return op.err
	case <-c.stopped:
		return errStopped
	}
}

// knowKeys waits until it is known which KEY_IDs and slots of a chain are in use. If there is no
// saved directory, or it may be out of date, the chain's switches must report that first.
func (c *Controller) knowKeys(ctx context.Context, chainName string) error {
	return c.waitWhile(ctx, func() (reason string, failed error) {
		err := c.call(ctx, func() {
			ch, err := c.findChain(chainName)
			if failed = err; err != nil || ch.tidied {
				return
			}
			st := ch.m.Status(c.now())
			if c.knows && !st.Doubt && !st.Stale {
				return
			}
			if c.tidy(ch, st); !ch.tidied {
				reason = fmt.Sprintf("which keys the switches hold is not known yet (%s): try again when the chain is ready",
					cmp.Or(st.Reason, "not all members are there"))
			}
		})
		return reason, errors.Join(err, failed)
	})
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// removeKey removes a key from the network. The removal continues even if ctx ends.
func (c *Controller) removeKey(ctx context.Context, chainName, nameOrID string) error {
	var op *keyOperation
	var failed error
	err := c.call(ctx, func() {
		ch, err := c.findChain(chainName)
		if err = errors.Join(err, c.inCharge()); err != nil {
			failed = err
			return
		}
		k, err := c.dir.Find(ch.topo.ID, nameOrID)
		switch {
		case err != nil:
			failed = err
		case k.State != keyspace.Placed || ch.tidying[k.ID]:
			failed = fmt.Errorf("%w: the key %q is being added or removed: try again in a moment", chain.ErrUnavailable, k.Name)
		default:
			op = c.remove(ch, k)
		}
	})
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	select {
	case <-op.done:
		return cmpErr(op.err, op.Err(0))
	case <-ctx.Done():
		return fmt.Errorf("the removal has begun and goes on: %w", ctx.Err())
	case <-c.stopped:
		return errStopped
	}
}

// remove starts the removal of a key that clients know. The removal begins only once it is on
// record. Otherwise a controller that took over would open the key again, and a late deletion would
// destroy values that clients have written by then.
func (c *Controller) remove(ch *chainState, k keyspace.Key) *keyOperation {
	return c.startRemoval(ch, []keyspace.Key{k}, func(op *keyOperation, err error) bool {
		if err == nil {
			return true
		}
		if !errors.Is(err, saved.ErrNotLeading) {
			c.dir.SetState(k.ID, keyspace.Placed)
			err = fmt.Errorf("%w: the removal could not be recorded, so the key stays: %w", chain.ErrUnavailable, err)
		}
		c.keysDone(ch, op, err)
		return false
	})
}

// takeOut starts the removal of keys that clients do not know. These are keys whose addition or
// move did not complete, and leftovers of keys that have moved. A controller that takes over also
// removes such keys, whatever is on record.
func (c *Controller) takeOut(ch *chainState, keys []keyspace.Key) {
	c.startRemoval(ch, keys, func(op *keyOperation, err error) bool {
		switch {
		case errors.Is(err, saved.ErrNotLeading):
			c.keysDone(ch, op, err)
			return false
		case err != nil:
			c.events.Add("state.not-saved", "", "", err.Error())
		}
		return true
	})
}

// startRemoval begins to remove keys once recorded returns true. recorded gets the result of
// saving the state.
func (c *Controller) startRemoval(ch *chainState, keys []keyspace.Key,
	recorded func(*keyOperation, error) bool) *keyOperation {
	keys = slices.Clone(keys)
	for i, k := range keys {
		c.dir.SetState(k.ID, keyspace.Removing)
		if now, ok := c.dir.ByID(k.ID); ok {
			keys[i] = now
		}
	}
	op := &keyOperation{id: c.nextOp(), Writes: ops.Writes{Keys: keys, Values: make([][]byte, len(keys))},
		done: make(chan struct{})}
	c.startOperation(ch, op)
	c.save(func(err error) {
		if recorded(op, err) {
			c.touch(ch).RemoveKeys(c.now(), op.id)
		}
	})
	return op
}

func (c *Controller) startOperation(ch *chainState, op *keyOperation) {
	ch.operations[op.id] = op
	c.countKeys(ch)
}

// undoUnfinished removes the keys whose addition or removal an earlier controller did not finish.
func (c *Controller) undoUnfinished() {
	for _, ch := range c.net().chains {
		back, out := ops.Unfinished(c.dir, ch.topo.ID)
		for _, k := range back {
			c.events.Add("keys.unfinished", "", ch.topo.Name, fmt.Sprintf("%q was being moved when the last controller ended: it stays here", k.Name))
			ops.Reattach(c.mover(ch, nil), k)
		}
		if len(out) > 0 {
			c.events.Add("keys.unfinished", "", ch.topo.Name, fmt.Sprintf(
				"%d keys were being added or removed when the last controller ended: they are taken out", len(out)))
			c.takeOut(ch, out)
		}
	}
}

// keysDone handles the end of an operation on keys.
func (c *Controller) keysDone(ch *chainState, op *keyOperation, err error) {
	op.err = err
	if op.finish != nil {
		delete(ch.operations, op.id)
		op.finish(err)
		c.countKeys(ch)
		close(op.done)
		return
	}
	placed, gone, undo := op.Ended(c.dir, op.add, err)
	for _, k := range placed {
		c.news[k.Name] = true
	}
	for _, k := range gone {
		c.replaced(k.Name)
	}
	done := len(placed) + len(gone)
	kind, what := "keys.removed", "removed"
	if op.add {
		kind, what = "keys.added", "added"
	}
	if err == nil && done > 0 {
		text := fmt.Sprintf("%d keys %s", done, what)
		if len(op.Keys) == 1 {
			text = fmt.Sprintf("%q %s (%v, slot %d)", op.Keys[0].Name, what, op.Keys[0].ID, op.Keys[0].Slot)
		}
		c.events.Add(kind, "", ch.topo.Name, text)
	} else if err != nil {
		c.events.Add("keys.failed", "", ch.topo.Name, fmt.Sprintf("%d keys not %s: %v", len(op.Keys), what, err))
	}
	delete(ch.operations, op.id)
	c.countKeys(ch)
	// The operation is done only when it is on record, because the next controller would remove
	// keys that are not recorded as placed.
	c.save(func(err error) {
		if err != nil && op.add {
			op.err = cmpErr(op.err, fmt.Errorf("%w: the keys are placed, but that could not be recorded: %w", chain.ErrUnavailable, err))
		}
		close(op.done)
	})
	if len(undo) > 0 {
		c.takeOut(ch, undo)
	}
}

// entriesOf writes or deletes the key_index entries of an operation's keys at one switch.
func (c *Controller) entriesOf(ch *chainState, id chain.OpID, attempt int, sw string, insert bool,
	entry func(keyspace.Key) ops.Entry) {
	c.writeEntriesOf(ch, id, attempt, sw, insert, ch.operations[id].Keys, entry)
}

// openEntriesOf opens the entries of an operation's keys at one switch, but only of keys whose
// writes are committed.
func (c *Controller) openEntriesOf(ch *chainState, a chain.OpenKeys) {
	c.writeEntriesOf(ch, a.Op, a.Attempt, a.Switch, true, ch.operations[a.Op].Written(), c.net().plan.OpenEntry)
}

func (c *Controller) writeEntriesOf(ch *chainState, id chain.OpID, attempt int, sw string, insert bool,
	of []keyspace.Key, entry func(keyspace.Key) ops.Entry) {
	d := c.net().byName[sw]
	var keys []ops.Entry
	for _, k := range of {
		keys = append(keys, entry(k))
	}
	stream := d.state.Stream
	d.Submit(func(ctx context.Context) {
		err := d.ReadIn(ctx, stream)
		if err == nil {
			err = d.WriteKeys(ctx, insert, keys)
		}
		c.post(func() { c.touch(ch).KeysDone(c.now(), id, attempt, err, err != nil && switches.Passing(err)) })
	})
}

// valuesOf sends an operation's writes to the head.
func (c *Controller) valuesOf(ch *chainState, id chain.OpID, attempt int, remove bool) {
	members := ch.m.Status(c.now()).Config.Members
	c.work(ch, id, attempt, switches.Passing, func(ctx context.Context, op *keyOperation) error {
		if !remove {
			unequal := func() (_, _ []string) { return c.unequal(ch, members) }
			if err := ch.ops.Equalise(ctx, unequal, c.begun); err != nil {
				return err
			}
		}
		return ch.ops.WriteAll(ctx, &op.Writes, members, remove)
	})
}

// unequal returns the members of a chain without keys whose session records may belong to earlier
// leases, because no other chain with keys uses these records. joining lists the members of this
// kind that another chain with keys is bringing in. (A switch that runs an earlier program does not
// reset records.)
func (c *Controller) unequal(ch *chainState, members []string) (unequal, joining []string) {
	_ = c.call(c.ctx, func() { // does nothing if the controller is ending
		in := func(of func(chain.Config) bool) bool {
			return slices.ContainsFunc(c.net().chains, func(other *chainState) bool {
				return other != ch && c.equality.Equal(other.topo.ID) && of(other.m.Status(c.now()).Config)
			})
		}
		for _, name := range members {
			d := c.net().byName[name]
			switch {
			case d == nil || d.Unguarded() || in(func(conf chain.Config) bool { return conf.IsMember(name) }):
			case in(func(conf chain.Config) bool { return conf.Shadow == name }):
				joining = append(joining, name)
			default:
				unequal = append(unequal, name)
			}
		}
	})
	return unequal, joining
}

// begun returns the initial values of the records of the sessions that clients have leased.
func (c *Controller) begun() (begun map[uint16]uint32) {
	_ = c.call(c.ctx, func() { begun = c.sess.Begun(c.now()) }) // empty if the controller is ending
	return begun
}

// countKeys sets how many keys a chain has.
func (c *Controller) countKeys(ch *chainState) {
	n := c.dir.Count(ch.topo.ID)
	if n == 0 {
		c.equality.Emptied(ch.topo.ID)
	}
	c.touch(ch).SetKeys(n)
}

// work runs one step of an operation, which takes a while and can be cancelled. again reports
// whether the step is worth another try after an error.
func (c *Controller) work(ch *chainState, id chain.OpID, attempt int, again func(error) bool,
	do func(context.Context, *keyOperation) error) {
	op := ch.operations[id]
	ctx, cancel := context.WithCancel(c.ctx)
	op.cancel = cancel
	go func() {
		defer cancel()
		err := do(ctx, op)
		c.post(func() { c.touch(ch).KeysDone(c.now(), id, attempt, err, err != nil && again(err)) })
	}()
}

// keyState is the state of a key at one switch.
type keyState struct {
	sw        string
	committed *wire.Packet
	newest    *wire.Packet
	err       error
}

// states reads the states of keys at members of their chains.
func (c *Controller) states(ctx context.Context, keys []keyspace.Key, at reach) (map[wire.Key][]keyState, error) {
	type item struct {
		key keyspace.Key
		at  *device
		out *keyState
	}
	var items []item
	out := map[wire.Key][]keyState{}
	err := c.call(ctx, func() {
		for _, k := range keys {
			ch := c.net().byID[k.ID.Chain()]
			if ch == nil {
				continue
			}
			members := c.members(ch)
			if at == stateAtTail && len(members) > 0 {
				members = members[len(members)-1:]
			}
			states := make([]keyState, len(members))
			for i, d := range members {
				states[i].sw = d.Spec.Name
				items = append(items, item{k, d, &states[i]})
			}
			out[k.ID] = states
		}
	})
	if err != nil {
		return nil, err
	}
	var silent sync.Map // devices that have not answered; a request for all keys waits only once for each of them
	err = ops.Each(ctx, switches.Goroutines{}, items, func(ctx context.Context, it item) error {
		if why, ok := silent.Load(it.at); ok {
			it.out.err = why.(error)
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		it.out.committed, it.out.err = it.at.Fetch(ctx, it.key.ID, 0, 0)
		if it.out.err == nil {
			it.out.newest, it.out.err = it.at.Fetch(ctx, it.key.ID, wire.Newest, 0)
		}
		if it.out.err != nil {
			silent.Store(it.at, it.out.err)
		}
		return nil // one silent switch must not make the whole request fail
	})
	return out, err
}
