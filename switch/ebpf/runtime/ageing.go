package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

var _ target.Ager = (*Pipeline)(nil)

// ageing is an entry's idle timeout. Packets know nothing of it: they count, and what has been
// counted since it was last looked at has hit the entry. So a hit is as late as the next look, and
// an entry is never told of too early.
type ageing struct {
	timeout time.Duration // 0: none
	hit     time.Duration // when the last packet was noticed, or the timeout was set
	packets uint64        // as counted then
	told    bool          // idle, and returned by Idle
}

// look notices whether packets have hit an entry. The time is that of the last look by the clock.
func (p *Pipeline) look(t *table, e *entry) {
	if e.age.timeout == 0 || t.Counter < 0 {
		return
	}
	if n := p.State.Load(t.counterAt(e.word)); n != e.age.packets {
		e.age.packets, e.age.hit, e.age.told = n, p.agesAt, false
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
		have.age = ageing{timeout: timeout, hit: now,
			packets: p.State.Load(t.counterAt(have.word))}
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
		p.agesAt = now
		p.look(t, have)
		timeout, since = have.age.timeout, max(now-have.age.hit, 0)
		return nil
	})
	return timeout, since, err
}

// Idle implements [target.Ager]. The entries are in the order in which they were inserted.
func (p *Pipeline) Idle(now time.Duration) (out []target.IdleEntry, any bool) {
	leave, err := p.enter()
	if err != nil {
		return nil, false
	}
	defer leave()
	p.agesAt = now
	var idle []*entry
	for e, t := range p.ages {
		p.look(t, e)
		if now-e.age.hit >= e.age.timeout && !e.age.told {
			e.age.told = true
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(p.ages[a].Source.Index, p.ages[b].Source.Index),
			cmp.Compare(a.seq, b.seq))
	})
	for _, e := range idle {
		out = append(out, target.IdleEntry{Table: p.ages[e].Source.Name,
			Entry: copyEntry(&e.TableEntry, slices.Clone(e.Match)), Timeout: e.age.timeout})
	}
	return out, len(p.ages) > 0
}
