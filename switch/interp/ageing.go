package interp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

var _ target.Ager = (*Pipeline)(nil)

// SetIdleTimeout implements [target.Ager].
func (p *Pipeline) SetIdleTimeout(name string, e *target.TableEntry, timeout,
	now time.Duration) error {
	return p.changeTable(name, "setting an idle timeout in table",
		func(t *table, e *target.TableEntry) error {
			if !t.src.SupportTimeout {
				return fmt.Errorf("the program gives it no support_timeout: %w",
					target.ErrUnsupported)
			}
			if timeout < 0 {
				return fmt.Errorf("a timeout of %v: %w", timeout, target.ErrInvalid)
			}
			have, err := t.lookupEntry(e)
			if err != nil {
				return err
			}
			if timeout == 0 {
				delete(p.ages, have)
			} else {
				p.ages[have] = t
			}
			p.dp.Lock()
			defer p.dp.Unlock()
			have.age = target.Ageing{Timeout: timeout, Hit: now}
			return nil
		}, e)
}

// IdleTimeout implements [target.Ager].
func (p *Pipeline) IdleTimeout(name string, e *target.TableEntry,
	now time.Duration) (timeout, since time.Duration, err error) {
	err = p.changeTable(name, "reading an idle timeout of table",
		func(t *table, e *target.TableEntry) error {
			have, err := t.lookupEntry(e)
			if err != nil {
				return err
			}
			p.dp.Lock()
			defer p.dp.Unlock()
			timeout, since = have.age.Timeout, max(now-have.age.Hit, 0)
			return nil
		}, e)
	return timeout, since, err
}

// Idle implements [target.Ager]. The entries are in the order in which they were inserted.
func (p *Pipeline) Idle(now time.Duration) (out []target.IdleEntry, any bool) {
	p.cp.Lock()
	defer p.cp.Unlock()
	type idleEntry struct {
		*entry
		again bool
	}
	var idle []idleEntry
	n := 0
	p.dp.Lock()
	for e := range p.ages {
		if due, again := e.age.Due(now); due {
			idle = append(idle, idleEntry{e, again})
		}
		if n++; n%batch == 0 { // let packets through
			p.dp.Unlock()
			p.dp.Lock()
		}
	}
	p.dp.Unlock()
	slices.SortFunc(idle, func(a, b idleEntry) int {
		return cmp.Or(cmp.Compare(p.ages[a.entry].src.Index, p.ages[b.entry].src.Index),
			cmp.Compare(a.seq, b.seq))
	})
	for _, e := range idle {
		out = append(out, target.IdleEntry{Table: p.ages[e.entry].src.Name, Entry: e.export(),
			Timeout: e.age.Timeout, Again: e.again})
	}
	return out, len(p.ages) > 0
}
