package watchrules

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// learn processes a newer state of a key. It offers the state to all followers that may get it.
func (m *Machine) learn(k *key, r Reading) {
	k.newest = r
	for _, f := range k.followers {
		if f.fresh {
			m.offer(f)
		}
	}
}

// refresh offers the state of a key to followers that have waited for a read. The read has now
// ended, and must have begun after the follower came.
func (m *Machine) refresh(k *key, t Ticket) {
	if k.waiting == 0 {
		return
	}
	for _, f := range k.followers {
		if !f.fresh && f.since < t {
			f.fresh = true
			k.waiting--
			m.offer(f)
		}
	}
}

// offer makes the newest state of a key pending for a watcher, unless the watcher already has it.
func (m *Machine) offer(f *follower) {
	if f.pending || !f.lacks() {
		return
	}
	f.pending = true
	w := f.watcher
	w.pending = append(w.pending, f)
	if !w.ready {
		w.ready = true
		m.ready = append(m.ready, w.id)
	}
}

// lacks reports whether the watcher does not have the newest state.
func (f *follower) lacks() bool {
	now := &f.key.newest
	if !f.told {
		// The first read is at least as new as every earlier report to any watcher. So if its
		// version is below the watcher's version, the name has got another KEY_ID since (see
		// key.life), and the change must be reported.
		return !f.has || now.Version != f.after && f.key.version != f.after
	}
	if !f.last.found && !now.Found && now.Version <= f.last.version {
		return false // the key did not exist for the watcher, and does not exist now
	}
	return f.last.life != f.key.life || f.last.version != now.Version
}

// Ready returns the watchers that have got pending changes since the last call of Ready.
func (m *Machine) Ready() []Watcher {
	out := m.ready
	m.ready = nil
	return out
}

// Take returns up to limit changes for a watcher, and reports whether there are more. Ready returns
// the watcher again only after it has taken all changes.
func (m *Machine) Take(id Watcher, limit int) (out []store.Change, more bool) {
	w := m.watchers[id]
	if w == nil {
		return nil, false
	}
	n := 0
	for _, f := range w.pending {
		if len(out) == limit {
			break
		}
		n++
		if f.pending {
			out = append(out, f.take())
		}
	}
	if w.pending = w.pending[n:]; len(w.pending) == 0 {
		w.pending, w.ready = nil, false
	}
	return out, len(w.pending) > 0
}

// take returns the newest state as a change, and records that the watcher has got it.
func (f *follower) take() store.Change {
	now := &f.key.newest
	out := store.Change{Item: now.Item}
	before, same := f.last.version, f.told && f.last.life == f.key.life
	if !f.told && f.has {
		before, same = f.after, true
	}
	// Sequences count the writes of a key across all epochs. With an offset they may wrap around.
	if n := uint64(now.Version-before) & wire.MaxSequence; same && n > 0 && n < wire.MaxSequence/2 {
		out.Overtaken = n - 1
	}
	f.pending, f.told = false, true
	f.last = told{f.key.life, now.Version, now.Found}
	return out
}
