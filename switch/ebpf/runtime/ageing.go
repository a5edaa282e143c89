package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

var _ target.Ager = (*Pipeline)(nil)

// noticeHit records when a packet last hit an entry. Packets write this time into the slot of the
// entry's word.
func (t *table) noticeHit(e *entry, word uint64) {
	if t.Hit >= 0 {
		booted := time.Duration(t.p.State.Load(t.slotAt(word) + t.Hit))
		e.age.Hit = max(e.age.Hit, booted-time.Duration(t.p.Started))
	}
}

// SetIdleTimeout implements [target.Ager].
func (p *Pipeline) SetIdleTimeout(name string, e *target.TableEntry, timeout,
	now time.Duration) error {
	return p.change("setting an idle timeout in", name, func(t *table) error {
		if !t.Source.SupportTimeout {
			return fmt.Errorf("the program gives it no support_timeout: %w",
				target.ErrUnsupported)
		}
		if timeout < 0 {
			return fmt.Errorf("a timeout of %v: %w", timeout, target.ErrInvalid)
		}
		have, _, err := t.find(e)
		if err != nil {
			return err
		}
		have.age = target.Ageing{Timeout: timeout, Hit: now}
		if timeout == 0 {
			delete(p.ages, have)
		} else {
			p.ages[have] = t
		}
		return nil
	})
}

// IdleTimeout implements [target.Ager].
func (p *Pipeline) IdleTimeout(name string, e *target.TableEntry,
	now time.Duration) (timeout, since time.Duration, err error) {
	err = p.change("reading an idle timeout of", name, func(t *table) error {
		have, _, err := t.find(e)
		if err != nil {
			return err
		}
		t.noticeHit(have, have.word)
		timeout, since = have.age.Timeout, max(now-have.age.Hit, 0)
		return nil
	})
	return timeout, since, err
}

// Idle implements [target.Ager]. It returns the entries in the order of their insertion.
func (p *Pipeline) Idle(now time.Duration) (out []target.IdleEntry, any bool) {
	leave, err := p.enter()
	if err != nil {
		return nil, false
	}
	defer leave()
	type idleEntry struct {
		*entry
		again bool
	}
	var idle []idleEntry
	for e, t := range p.ages {
		t.noticeHit(e, e.word)
		if due, again := e.age.Due(now); due {
			idle = append(idle, idleEntry{e, again})
		}
	}
	slices.SortFunc(idle, func(a, b idleEntry) int {
		return cmp.Or(cmp.Compare(p.ages[a.entry].Source.Index, p.ages[b.entry].Source.Index),
			cmp.Compare(a.seq, b.seq))
	})
	for _, e := range idle {
		out = append(out, target.IdleEntry{Table: p.ages[e.entry].Source.Name,
			Entry:   copyEntry(&e.TableEntry, slices.Clone(e.Match)),
			Timeout: e.age.Timeout, Again: e.again})
	}
	return out, len(p.ages) > 0
}
