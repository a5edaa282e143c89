package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/target"
)

func (p *Pipeline) valueSet(name string) (*matchtables.ValueSet, error) {
	s := p.src.ValueSet(name)
	if s == nil {
		return nil, fmt.Errorf("value set %q: %w", name, target.ErrNotFound)
	}
	return p.ref.ValueSets[s.Index], nil
}

// SetValueSet implements [target.Pipeline].
func (p *Pipeline) SetValueSet(name string, members [][]target.FieldMatch) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	s, err := p.valueSet(name)
	if err != nil {
		return err
	}
	return s.Set(members, &p.dp)
}

// ValueSet implements [target.Pipeline].
func (p *Pipeline) ValueSet(name string) ([][]target.FieldMatch, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	s, err := p.valueSet(name)
	if err != nil {
		return nil, err
	}
	return s.List(), nil
}
