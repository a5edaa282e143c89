package watchrules

import (
	"container/heap"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Notified processes a notification of a commit. A notification may come late, twice, or never.
func (m *Machine) Notified(now time.Duration, id wire.Key, version wire.Version, found bool, value []byte) {
	k := m.ids[id]
	if k == nil {
		return
	}
	version += k.newest.Offset
	before := k.version
	if version <= before {
		m.counts.Old++
		return
	}
	m.counts.Notified++
	next := k.newest
	k.version = version
	next.Version, next.Found, next.Value = version, found, value
	m.learn(k, next)
	if version != before+1 { // earlier notifications were lost or are late, or the chain has failed over
		m.SuspectChain(now, id.Chain())
	}
}

// SuspectChain records that notifications of a chain may have been lost. All keys of the chain are
// then read. This happens at once or, if it was done recently, after Config.Suspect.
func (m *Machine) SuspectChain(now time.Duration, id uint8) {
	if c := m.chains[id]; c != nil {
		c.suspected = true
		m.check(now)
	}
}

// SuspectAll does what SuspectChain does, for all chains and for keys without a chain.
func (m *Machine) SuspectAll(now time.Duration) {
	for _, k := range m.keys {
		m.readSoon(k, now)
	}
}

// SuspectID requests a read of the key with a KEY_ID.
func (m *Machine) SuspectID(now time.Duration, id wire.Key) {
	if k := m.ids[id]; k != nil {
		m.readSoon(k, now)
	}
}

// SuspectKey requests a read of a key, if the key has followers.
func (m *Machine) SuspectKey(now time.Duration, name store.Key) {
	if k := m.keys[name]; k != nil {
		m.readSoon(k, now)
	}
}

// check schedules reads of all keys of the chains that SuspectChain has marked.
func (m *Machine) check(now time.Duration) {
	for _, c := range m.chains {
		if !c.suspected || c.ever && now < c.checked+m.config.Suspect {
			continue
		}
		c.suspected, c.ever, c.checked = false, true, now
		for k := range c.keys {
			m.readSoon(k, now)
		}
	}
}

// readSoon requests a read of a key that begins now or later. A read that is already under way is
// not enough.
func (m *Machine) readSoon(k *key, now time.Duration) {
	if k.reading {
		k.again = true
	} else {
		m.at(k, min(k.due, now))
	}
}

// at schedules the next read of a key that has no read under way.
func (m *Machine) at(k *key, due time.Duration) {
	k.due = due
	heap.Fix(&m.due, k.place)
}

// Begin returns the reads that the caller must execute now. For each of them the caller must call
// Ended or Failed.
func (m *Machine) Begin(now time.Duration) []Read {
	m.check(now)
	var out []Read
	for len(m.due) > 0 && m.due[0].due <= now && len(m.reads) < m.config.Reads {
		k := heap.Pop(&m.due).(*key)
		m.begun++
		k.reading, k.again, k.began = true, false, now
		m.reads[m.begun] = k
		out = append(out, Read{k.name, m.begun})
	}
	return out
}

// Next returns the time at which Begin must be called if nothing else happens before. It returns
// false if Begin need not be called.
func (m *Machine) Next() (time.Duration, bool) {
	if len(m.due) == 0 || len(m.reads) >= m.config.Reads {
		return 0, false
	}
	next := m.due[0].due
	for _, c := range m.chains {
		if c.suspected {
			next = min(next, c.checked+m.config.Suspect)
		}
	}
	return next, true
}

// end removes a read that has ended, and returns its key. It returns nil if the key has no more
// followers.
func (m *Machine) end(t Ticket) *key {
	k := m.reads[t]
	delete(m.reads, t)
	if k == nil || m.keys[k.name] != k {
		return nil
	}
	k.reading = false
	return k
}

// Ended processes the result of a read.
func (m *Machine) Ended(now time.Duration, t Ticket, r Reading) {
	k := m.end(t)
	if k == nil {
		return
	}
	k.failures = 0
	k.due = k.began + m.config.Unhelped
	if r.Helped {
		k.due = k.began + m.config.Round
	}
	if k.again {
		k.due = now
	}
	heap.Push(&m.due, k)
	anew := k.known && r.ID != k.newest.ID && !r.sameState(&k.newest)
	if k.known && (anew || r.Version > k.version) {
		if k.newest.Helped {
			m.counts.Repaired++
		} else {
			m.counts.Read++
		}
	}
	m.rename(k, r.ID)
	k.newest.Helped, k.newest.Offset = r.Helped, r.Offset
	if anew {
		k.life++
	}
	if !k.known || anew || r.Version > k.version {
		k.version = r.Version
		if k.known && !r.Found && r.Version == 0 {
			r.Version = k.newest.Version
			if k.newest.Found {
				r.Version++
			}
		}
		k.known = true
		m.learn(k, r)
	}
	m.refresh(k, t)
}

// Failed processes a read that failed.
func (m *Machine) Failed(now time.Duration, t Ticket) {
	k := m.end(t)
	if k == nil {
		return
	}
	longest := max(m.config.Retry, min(m.config.Unhelped, m.config.Round))
	k.due = now + min(m.config.Retry<<min(k.failures, 16), longest)
	k.failures++
	heap.Push(&m.due, k)
}

// schedule is a heap of keys, ordered by the time at which they must next be read.
type schedule []*key

func (s schedule) Len() int { return len(s) }
func (s schedule) Less(i, j int) bool {
	return s[i].due < s[j].due || s[i].due == s[j].due && s[i].number < s[j].number
}
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	k := x.(*key)
	k.place = len(*s)
	*s = append(*s, k)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	k := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	k.place = -1
	return k
}
