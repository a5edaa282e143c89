package chain

import (
	"fmt"
	"maps"
	"slices"
)

// keyWork is the kind of an operation on keys.
type keyWork int

const (
	addKeys      keyWork = iota
	removeKeys           // remove keys and their values
	detachKeys           // hide keys from clients; their values stay in the slots, reachable by an alias
	reattachKeys         // undo detachKeys
)

// keyStage is one stage of an operation. Stages that make or delete entries go from member to
// member. Every other stage is a single step.
type keyStage int

const (
	insertStage      keyStage = iota // write entries, tail first; the entries of new keys are hidden
	writeStage                       // send the first write through the chain, until all members are clean
	openStage                        // open the hidden entries, tail first
	removeStage                      // send tombstones through the chain, until all members are clean
	deleteStage                      // delete entries, head first
	insertAliasStage                 // write the aliases' entries, tail first
	deleteAliasStage                 // delete the aliases' entries, head first
	// re-propagate dirty slots until all members are equal, then read the slots
	drainStage
)

// stages lists the stages of each kind of work.
//
// An addition makes hidden entries first: through them the controller reaches the slot, while
// clients find no key. So no client sees an earlier key's content of the slot, and no client
// writes before the first write is committed at all members. The tail is opened before the head,
// because the tail commits the writes that the head accepts.
//
// To move a key (docs/protocol.md, "Moving keys") the controller must reach its slot after clients
// no longer can. It uses an entry with another KEY_ID, the alias, which no client knows.
//
// A removal first makes closed entries at all members. They are closed so that no client writes
// after the tombstone. They are made at all members because a removal may undo half an addition or
// continue half a removal, and a member without an entry would drop the tombstone.
var stages = map[keyWork][]keyStage{
	addKeys:      {insertStage, writeStage, openStage},
	removeKeys:   {insertStage, removeStage, deleteStage},
	detachKeys:   {insertAliasStage, deleteStage, drainStage},
	reattachKeys: {insertStage, deleteAliasStage},
}

// undone lists the stages that undo work after a switch has refused an entry.
var undone = map[keyWork][]keyStage{
	addKeys:      {deleteStage},
	removeKeys:   {deleteStage},
	detachKeys:   {insertStage, deleteAliasStage},
	reattachKeys: {insertStage, deleteAliasStage},
}

// keyOp is an operation on some keys. The machine knows the operation; the shell knows its keys.
type keyOp struct {
	id      OpID
	work    keyWork
	waiting bool // the operation waits until the configuration is ready
	at      int  // index of the present stage
	// member is the index of the present member in that stage. Insertions count from the tail, and
	// deletions count from the head.
	member   int
	attempt  int
	running  bool
	retryAt  Time
	rollback error // why a switch refused an entry; nil if no switch did
}

func (o *keyOp) stages() []keyStage {
	if o.rollback != nil {
		return undone[o.work]
	}
	return stages[o.work]
}

func (o *keyOp) stage() keyStage { return o.stages()[o.at] }

// AddKeys starts an operation that places keys: it makes hidden entries tail first, sends the
// first writes, and opens the entries.
func (m *Machine) AddKeys(now Time, op OpID) { m.startKeys(now, op, addKeys) }

// RemoveKeys starts an operation that removes keys: it closes the entries, sends tombstones, and
// deletes the entries head first.
func (m *Machine) RemoveKeys(now Time, op OpID) { m.startKeys(now, op, removeKeys) }

// DetachKeys starts an operation that hides keys from clients and reads their content. When it is
// done, only the controller can read or write them, by their aliases.
func (m *Machine) DetachKeys(now Time, op OpID) { m.startKeys(now, op, detachKeys) }

// ReattachKeys starts an operation that undoes a DetachKeys, whether that has finished or not.
func (m *Machine) ReattachKeys(now Time, op OpID) { m.startKeys(now, op, reattachKeys) }

func (m *Machine) startKeys(now Time, op OpID, work keyWork) {
	m.ops[op] = &keyOp{id: op, work: work, waiting: true}
	m.step(now)
}

// canKeys reports whether operations on keys can run. The configuration must accept writes, and
// must not be changing. It must not be one that an earlier controller left in the middle of a
// change. Emptying a switch that will be brought in does not count as a change, because it may take
// long, for example if the switch has lost power.
func (m *Machine) canKeys() bool {
	return (m.phase() == Ready || m.erasing()) && m.recorded() && m.cfg.Freeze == Thawed && m.cfg.Shadow == ""
}

// recorded reports whether the durable record says that the chain holds data.
func (m *Machine) recorded() bool { return m.unrecorded == 0 && m.recordAt == 0 }

// restart begins an operation again with the present members. Parts of each step may have been done
// before.
func (m *Machine) restart(o *keyOp) {
	o.attempt++
	o.waiting, o.at, o.member, o.running, o.retryAt = false, 0, 0, false, 0
}

// pauseKeys stops all operations for a change of the configuration.
func (m *Machine) pauseKeys() {
	for _, id := range slices.Sorted(maps.Keys(m.ops)) {
		if o := m.ops[id]; !o.waiting {
			if o.running {
				m.do(CancelKeys{id})
			}
			o.waiting, o.running, o.retryAt = true, false, 0
		}
	}
}

// stepKeys starts the next action of each operation.
func (m *Machine) stepKeys(now Time) {
	if !m.canKeys() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.ops)) {
		o := m.ops[id]
		if o.waiting {
			m.restart(o)
		}
		if o.running || now < o.retryAt {
			continue
		}
		members := m.cfg.Members
		target := members[0]
		switch o.stage() {
		case insertStage, insertAliasStage, openStage:
			target = members[len(members)-1-o.member]
		case deleteStage, deleteAliasStage:
			target = members[o.member]
		}
		if !m.view[target].up {
			continue // when the switch is back, SwitchUp continues the operation
		}
		o.running, o.retryAt = true, 0
		switch o.stage() {
		case insertStage:
			m.do(InsertKeys{id, o.attempt, target, false})
		case insertAliasStage:
			m.do(InsertKeys{id, o.attempt, target, true})
		case writeStage:
			m.do(WriteKeys{id, o.attempt, target})
		case openStage:
			m.do(OpenKeys{id, o.attempt, target})
		case removeStage:
			m.do(DeleteValues{id, o.attempt, target})
		case deleteStage:
			m.do(DeleteKeys{id, o.attempt, target, false})
		case deleteAliasStage:
			m.do(DeleteKeys{id, o.attempt, target, true})
		case drainStage:
			m.do(DrainKeys{id, o.attempt, m.cfg.Epoch, slices.Clone(members)})
		}
	}
}

// KeysDone reports the result of InsertKeys, OpenKeys, DeleteKeys, WriteKeys, DeleteValues or
// DrainKeys. again is false for a permanent error of the switch (for example, the table is full),
// and true for an error that may go away (for example, the connection was lost).
func (m *Machine) KeysDone(now Time, op OpID, attempt int, err error, again bool) {
	o := m.ops[op]
	if o == nil || o.attempt != attempt || !o.running {
		return
	}
	o.running = false
	inserting := o.stage() == insertStage || o.stage() == insertAliasStage
	perMember := inserting || o.stage() == openStage || o.stage() == deleteStage || o.stage() == deleteAliasStage
	switch {
	case err != nil && again:
		o.retryAt = now + retry
	case err != nil && (inserting || o.work == addKeys) && o.rollback == nil:
		// The entries are deleted again at the switches that have them, in the usual order. A value
		// that stays in the slot of a key that was being added is never visible, because the slot's
		// next key is hidden until it is written.
		o.rollback = err
		m.restart(o)
	case err != nil:
		m.endKeys(o, err)
	default:
		if o.member++; perMember && o.member < len(m.cfg.Members) {
			break
		}
		if o.at, o.member = o.at+1, 0; o.at < len(o.stages()) {
			break
		}
		if o.work == removeKeys {
			// Some member had no room for all entries, so no client has ever been able to write the
			// keys. Now no member has an entry of them.
			o.rollback = nil
		}
		m.endKeys(o, o.rollback)
	}
	m.step(now)
}

func (m *Machine) endKeys(o *keyOp, err error) {
	delete(m.ops, o.id)
	m.do(Done{o.id, err})
}

// AbandonKeys ends an operation whose caller has stopped waiting.
func (m *Machine) AbandonKeys(now Time, op OpID, why error) {
	o := m.ops[op]
	if o == nil {
		return
	}
	if o.running {
		m.do(CancelKeys{op})
	}
	m.endKeys(o, fmt.Errorf("%w: %w", ErrUnavailable, why))
	m.step(now)
}
