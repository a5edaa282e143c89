package matchtables

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// lookedAt is the number of entries that IdleEntries examines before it unlocks the mutex that
// stops packets.
const lookedAt = 1024

// SetIdleTimeout sets or removes the idle timeout of the entry that e identifies.
func (t *Table) SetIdleTimeout(e *target.TableEntry, timeout, now time.Duration) error {
	if !t.Source.SupportTimeout {
		return fmt.Errorf("the program gives it no support_timeout: %w", target.ErrUnsupported)
	}
	if timeout < 0 {
		return fmt.Errorf("a timeout of %v: %w", timeout, target.ErrInvalid)
	}
	have, err := t.LookupEntry(e)
	if err != nil {
		return err
	}
	if timeout == 0 {
		delete(t.idle, have)
	} else {
		t.idle[have] = struct{}{}
	}
	t.packets.Lock()
	defer t.packets.Unlock()
	have.age = target.Ageing{Timeout: timeout, Hit: now}
	return nil
}

// IdleTimeout returns the idle timeout of the entry that e identifies, and the time since a packet
// last hit this entry.
func (t *Table) IdleTimeout(e *target.TableEntry,
	now time.Duration) (timeout, since time.Duration, err error) {
	have, err := t.LookupEntry(e)
	if err != nil {
		return 0, 0, err
	}
	t.packets.Lock()
	defer t.packets.Unlock()
	return have.age.Timeout, max(now-have.age.Hit, 0), nil
}

// IdleEntries returns the entries whose timeout has expired, in the order of their insertion. It
// also reports whether any entry has a timeout.
func (t *Table) IdleEntries(now time.Duration) (out []target.IdleEntry, any bool) {
	type idleEntry struct {
		*Entry
		again bool
	}
	var idle []idleEntry
	n := 0
	t.packets.Lock()
	for e := range t.idle {
		if due, again := e.age.Due(now); due {
			idle = append(idle, idleEntry{e, again})
		}
		if n++; n%lookedAt == 0 { // let waiting packets pass
			t.packets.Unlock()
			t.packets.Lock()
		}
	}
	t.packets.Unlock()
	slices.SortFunc(idle, func(a, b idleEntry) int { return cmp.Compare(a.seq, b.seq) })
	for _, e := range idle {
		out = append(out, target.IdleEntry{Table: t.Source.Name, Entry: e.export(),
			Timeout: e.age.Timeout, Again: e.again})
	}
	return out, len(t.idle) > 0
}
