package interp

import (
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/target"
)

var _ target.Ager = (*Pipeline)(nil)

// SetIdleTimeout implements [target.Ager].
func (p *Pipeline) SetIdleTimeout(name string, e *target.TableEntry, timeout,
	now time.Duration) error {
	return p.changeTable(name, "setting an idle timeout in table",
		func(t *matchtables.Table, e *target.TableEntry) error { return t.SetIdleTimeout(e, timeout, now) }, e)
}

// IdleTimeout implements [target.Ager].
func (p *Pipeline) IdleTimeout(name string, e *target.TableEntry,
	now time.Duration) (timeout, since time.Duration, err error) {
	err = p.changeTable(name, "reading an idle timeout of table",
		func(t *matchtables.Table, e *target.TableEntry) (err error) {
			timeout, since, err = t.IdleTimeout(e, now)
			return err
		}, e)
	return timeout, since, err
}

// Idle implements [target.Ager]. It returns the entries in the order of their insertion.
func (p *Pipeline) Idle(now time.Duration) (out []target.IdleEntry, any bool) {
	p.cp.Lock()
	defer p.cp.Unlock()
	for _, t := range p.ref.Tables {
		entries, some := t.IdleEntries(now)
		out, any = append(out, entries...), any || some
	}
	return out, any
}
