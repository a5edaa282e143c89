package chain

import (
	"fmt"
	"maps"
	"slices"
)

// keyStage is how far an operation on keys has come.
type keyStage int

const (
	waitingStage keyStage = iota // for the configuration
	insertStage                  // entries, tail first
	writeStage                   // first write through the chain
	removeStage                  // tombstones through the chain, then all clean
	deleteStage                  // entries, head first
)

// keyOp adds or removes some keys. The machine knows the operation, the shell its keys.
type keyOp struct {
	id       OpID
	add      bool
	stage    keyStage
	attempt  int
	at       int // the member, from the tail when inserting, from the head when deleting
	running  bool
	retryAt  Time
	rollback error // an insertion failed for this reason: delete the entries again
}

// AddKeys starts an operation that places keys: entries tail first, then their first write.
func (m *Machine) AddKeys(now Time, op OpID) { m.startKeys(now, &keyOp{id: op, add: true}) }

// RemoveKeys starts an operation that takes keys out: tombstones, then entries head first.
func (m *Machine) RemoveKeys(now Time, op OpID) { m.startKeys(now, &keyOp{id: op}) }

func (m *Machine) startKeys(now Time, o *keyOp) {
	m.ops[o.id] = o
	if m.canKeys() {
		m.restart(o)
	}
	m.step(now)
}

// canKeys says whether the configuration takes writes.
func (m *Machine) canKeys() bool {
	return m.decided && m.installed && m.recorded() && m.persisting == nil && m.change == nil && m.cfg.Freeze == Thawed
}

// recorded says whether it is on record that the chain holds data.
func (m *Machine) recorded() bool { return m.unrecorded == 0 && m.recordAt == 0 }

// restart begins an operation anew, with the members as they are now. Each of its steps may have been done before, in part.
func (m *Machine) restart(o *keyOp) {
	o.attempt++
	o.at, o.running, o.retryAt = 0, false, 0
	switch {
	case o.rollback != nil:
		o.stage = deleteStage
	case o.add:
		o.stage = insertStage
	default:
		o.stage = removeStage
	}
}

// pauseKeys stops all operations for a change of the configuration.
func (m *Machine) pauseKeys() {
	for _, id := range slices.Sorted(maps.Keys(m.ops)) {
		if o := m.ops[id]; o.stage != waitingStage {
			if o.running {
				m.do(CancelKeys{id})
			}
			o.stage, o.running, o.retryAt = waitingStage, false, 0
		}
	}
}

func (m *Machine) resumeKeys(now Time) {
	if !m.canKeys() {
		return
	}
	for _, o := range m.ops {
		if o.stage == waitingStage {
			m.restart(o)
		}
	}
	m.stepKeys(now)
}

// stepKeys starts what each operation needs next.
func (m *Machine) stepKeys(now Time) {
	if !m.canKeys() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.ops)) {
		o := m.ops[id]
		if o.stage == waitingStage {
			m.restart(o)
		}
		if o.running || now < o.retryAt {
			continue
		}
		members := m.cfg.Members
		target := members[0]
		switch o.stage {
		case insertStage:
			target = members[len(members)-1-o.at]
		case deleteStage:
			target = members[o.at]
		}
		if !m.view[target].up {
			continue // SwitchUp comes back here
		}
		o.running, o.retryAt = true, 0
		switch o.stage {
		case insertStage:
			m.do(InsertKeys{id, o.attempt, target})
		case writeStage:
			m.do(WriteKeys{id, o.attempt, target})
		case removeStage:
			m.do(DeleteValues{id, o.attempt, target})
		case deleteStage:
			m.do(DeleteKeys{id, o.attempt, target})
		}
	}
}

// KeysDone answers InsertKeys, DeleteKeys, WriteKeys and DeleteValues. An error that the switch gave for good (the table is full) has again false;
// one that may go away (the connection was lost) has it true.
func (m *Machine) KeysDone(now Time, op OpID, attempt int, err error, again bool) {
	o := m.ops[op]
	if o == nil || o.attempt != attempt || !o.running {
		return
	}
	o.running = false
	switch {
	case err != nil && again:
		o.retryAt = now + retry
	case err != nil && o.stage == insertStage:
		// Those that have entries give them up again, in the order in which entries go.
		o.rollback = err
		m.restart(o)
	case err != nil:
		m.endKeys(o, err)
	default:
		o.at++
		last := o.at == len(m.cfg.Members)
		switch {
		case o.stage == insertStage && last:
			o.stage = writeStage
		case o.stage == removeStage:
			o.stage, o.at = deleteStage, 0
		case o.stage == writeStage:
			m.endKeys(o, nil)
		case o.stage == deleteStage && last:
			m.endKeys(o, o.rollback)
		}
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
