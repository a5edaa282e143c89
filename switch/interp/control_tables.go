package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/target"
)

// The control plane's access to tables. Pipeline.cp serializes control-plane calls. Pipeline.dp
// excludes packets. A control-plane call holds Pipeline.dp only for the moment of a change.

func (p *Pipeline) table(name string) (*matchtables.Table, error) {
	t := p.src.Table(name)
	if t == nil {
		return nil, fmt.Errorf("table %q: %w", name, target.ErrNotFound)
	}
	return p.ref.Tables[t.Index], nil
}

// changeTable calls change to change an entry of a table. what describes the change in errors.
func (p *Pipeline) changeTable(name, what string, change func(*matchtables.Table, *target.TableEntry) error,
	e *target.TableEntry) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return err
	}
	if err := change(t, e); err != nil {
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	return nil
}

// InsertEntry implements [target.Pipeline].
func (p *Pipeline) InsertEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "inserting into table", (*matchtables.Table).Insert, e)
}

// ModifyEntry implements [target.Pipeline]. Counters and meters of the entry stay unchanged.
func (p *Pipeline) ModifyEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "modifying an entry of table", (*matchtables.Table).Modify, e)
}

// DeleteEntry implements [target.Pipeline].
func (p *Pipeline) DeleteEntry(name string, e *target.TableEntry) error {
	return p.changeTable(name, "deleting from table", (*matchtables.Table).Delete, e)
}

// Entries implements [target.Pipeline]. It returns entries in the order of their insertion.
func (p *Pipeline) Entries(name string) ([]target.TableEntry, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	return t.Entries(), nil
}

// SetDefault implements [target.Pipeline].
func (p *Pipeline) SetDefault(name string, e *target.TableEntry) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return err
	}
	if err := t.SetDefault(e); err != nil {
		return fmt.Errorf("setting the default entry of table %q: %w", name, err)
	}
	return nil
}

// Default implements [target.Pipeline].
func (p *Pipeline) Default(name string) (*target.TableEntry, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	return t.DefaultEntry(), nil
}
