package chain

import (
	"fmt"
	"maps"
	"slices"
)

// keyWork is what an operation on keys does.
type keyWork int

const (
	addKeys      keyWork = iota
	removeKeys           // with their values
	detachKeys           // out of clients' sight, with their values left in the slots, under an alias
	reattachKeys         // undoes that
)

// keyStage is one stage of an operation. Those that make or delete entries go from member to
// member, the others are one step.
type keyStage int

const (
	insertStage      keyStage = iota // entries, tail first; hidden ones of keys that are being added
	writeStage                       // first write through the chain, until all members are clean
	openStage                        // the hidden entries are opened, tail first
	removeStage                      // tombstones through the chain, then all clean
	deleteStage                      // entries, head first
	insertAliasStage                 // entries of the aliases, tail first
	deleteAliasStage                 // ... head first
	// what is dirty in the slots is re-propagated, until all members are equal; then what they hold
	// is read
	drainStage
)

// stages are those of a kind of work.
//
// An addition makes hidden entries first: the controller reaches the slot by them, and clients find
// no key. So no client sees an earlier key's content of the slot, and none writes before the first
// write is committed at all members. The tail is opened before the head, because it commits the
// writes that the head accepts.
//
// To move a key (docs/protocol.md, "Moving keys") the controller must still reach its slot when
// clients no longer can: by an entry of another KEY_ID, the alias, that nobody else knows.
//
// A removal makes all entries first: closed ones, so that no client writes after the tombstone, and
// at all members, since one that takes back half an addition, or continues with half a removal,
// would otherwise send a tombstone that a member without an entry drops.
var stages = map[keyWork][]keyStage{
	addKeys:      {insertStage, writeStage, openStage},
	removeKeys:   {insertStage, removeStage, deleteStage},
	detachKeys:   {insertAliasStage, deleteStage, drainStage},
	reattachKeys: {insertStage, deleteAliasStage},
}

// undone is what takes back work of which a switch has refused an entry.
var undone = map[keyWork][]keyStage{
	addKeys:      {deleteStage},
	removeKeys:   {deleteStage},
	detachKeys:   {insertStage, deleteAliasStage},
	reattachKeys: {insertStage, deleteAliasStage},
}

// keyOp is an operation on some keys. The machine knows the operation, the shell its keys.
type keyOp struct {
	id       OpID
	work     keyWork
	waiting  bool // for the configuration
	at       int  // the stage
	member   int  // in it, from the tail when inserting, from the head when deleting
	attempt  int
	running  bool
	retryAt  Time
	rollback error // an entry was refused for this reason
}

func (o *keyOp) stages() []keyStage {
	if o.rollback != nil {
		return undone[o.work]
	}
	return stages[o.work]
}

func (o *keyOp) stage() keyStage { return o.stages()[o.at] }

// AddKeys starts an operation that places keys: hidden entries tail first, then their first write,
// then the entries are opened.
func (m *Machine) AddKeys(now Time, op OpID) { m.startKeys(now, op, addKeys) }

// RemoveKeys starts an operation that takes keys out: entries closed, tombstones, then entries head
// first.
func (m *Machine) RemoveKeys(now Time, op OpID) { m.startKeys(now, op, removeKeys) }

// DetachKeys starts an operation that takes keys out of clients' sight, and reads their content.
// When it is done nobody can read or write them, except for the controller by their aliases.
func (m *Machine) DetachKeys(now Time, op OpID) { m.startKeys(now, op, detachKeys) }

// ReattachKeys starts an operation that undoes DetachKeys, finished or not.
func (m *Machine) ReattachKeys(now Time, op OpID) { m.startKeys(now, op, reattachKeys) }

func (m *Machine) startKeys(now Time, op OpID, work keyWork) {
	m.ops[op] = &keyOp{id: op, work: work, waiting: true}
	m.step(now)
}

// canKeys says whether the configuration takes writes, is not one that an earlier controller left
// in the middle of a change, and is not being changed. While a switch is emptied that is to be
// brought in it is not: that may take long, where the switch has lost its power, for example.
func (m *Machine) canKeys() bool {
	return (m.phase() == Ready || m.erasing()) && m.recorded() && m.cfg.Freeze == Thawed && m.cfg.Shadow == ""
}

// recorded says whether it is on record that the chain holds data.
func (m *Machine) recorded() bool { return m.unrecorded == 0 && m.recordAt == 0 }

// restart begins an operation again, with the members as they are now. Each of its steps may have
// been done before, in part.
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

// stepKeys starts what each operation needs next.
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
			continue // SwitchUp comes back here
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

// KeysDone answers InsertKeys, OpenKeys, DeleteKeys, WriteKeys, DeleteValues and DrainKeys. An
// error that the switch gave for good (the table is full) has again false; one that may go away
// (the connection was lost) has it true.
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
		// Those that have entries give them up again, in the order in which entries go. What is
		// left in the slot of a key that was being added nobody will see: the key that has the slot
		// next is hidden until it is written.
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
			// there was no room for all its entries, so it had none at some member, and nobody has
			// ever written it; now no member has one
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

// AbandonKeys ends an operation that nobody waits for any more.
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
