package watchrules

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// learn processes a newer state of a key, and offers it to all followers that may be told.
func (m *Machine) learn(k *key, r Reading) {
	k.newest = r
	for _, f := range k.followers {
		if f.fresh {
			m.offer(f)
		}
	}
}

// refresh offers the state to followers that have waited for the read that has now ended, if it
// began after they came.
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

// offer makes a key's newest state pending for a watcher, unless the watcher has it.
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

// lacks reports whether the watcher does not know the newest state.
func (f *follower) lacks() bool {
	now := &f.key.newest
	if !f.told {
		// The first read is at least as new as every earlier report to any watcher. So if its
		// version is below the watcher's, the name has got another KEY_ID since (key.life), and the
		// change must be reported.
		return !f.has || now.Version != f.after && f.key.version != f.after
	}
	if !f.last.found && !now.Found && now.Version <= f.last.version {
		return false // it did not exist, and does not exist
	}
	return f.last.life != f.key.life || f.last.version != now.Version
}

// Ready returns the watchers that have got pending changes since the last call.
func (m *Machine) Ready() []Watcher {
	out := m.ready
	m.ready = nil
	return out
}

// Take returns up to limit changes for a watcher, and whether there are more. Ready returns a
// watcher again only after it has taken all changes.
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

// take returns the newest state as a change, and notes that it was reported to the watcher.
func (f *follower) take() store.Change {
	now := &f.key.newest
	out := store.Change{Item: now.Item}
	before, same := f.last.version, f.told && f.last.life == f.key.life
	if !f.told && f.has {
		before, same = f.after, true
	}
	// Sequences count a key's writes across all epochs; with an offset they may wrap around.
	if n := uint64(now.Version-before) & wire.MaxSequence; same && n > 0 && n < wire.MaxSequence/2 {
		out.Overtaken = n - 1
	}
	f.pending, f.told = false, true
	f.last = told{f.key.life, now.Version, now.Found}
	return out
}
