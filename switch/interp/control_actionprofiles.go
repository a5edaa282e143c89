package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/target"
)

func (p *Pipeline) actionProfile(name string) (*matchtables.ActionProfile, error) {
	src := p.src.ActionProfile(name)
	if src == nil {
		return nil, fmt.Errorf("action profile %q: %w", name, target.ErrNotFound)
	}
	return p.ref.ActionProfiles[src.Index], nil
}

// SetMember implements [target.Pipeline].
func (p *Pipeline) SetMember(name string, id uint32, a *target.ActionCall, insert bool) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return err
	}
	if err := pr.SetMember(id, a, insert); err != nil {
		return fmt.Errorf("member %d of action profile %q: %w", id, name, err)
	}
	return nil
}

// DeleteMember implements [target.Pipeline]. It refuses to delete a member that an entry or a group
// uses.
func (p *Pipeline) DeleteMember(name string, id uint32) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return err
	}
	return pr.DeleteMember(id)
}

// Members implements [target.Pipeline].
func (p *Pipeline) Members(name string) (map[uint32]target.ActionCall, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return nil, err
	}
	return pr.ListMembers(), nil
}

// SetGroup implements [target.Pipeline].
func (p *Pipeline) SetGroup(name string, id uint32, members []target.WeightedMember,
	insert bool) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return err
	}
	if err := pr.SetGroup(id, members, insert); err != nil {
		return fmt.Errorf("group %d of action profile %q: %w", id, name, err)
	}
	return nil
}

// DeleteGroup implements [target.Pipeline]. It refuses to delete a group that an entry uses.
func (p *Pipeline) DeleteGroup(name string, id uint32) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return err
	}
	return pr.DeleteGroup(id)
}

// Groups implements [target.Pipeline].
func (p *Pipeline) Groups(name string) (map[uint32][]target.WeightedMember, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	pr, err := p.actionProfile(name)
	if err != nil {
		return nil, err
	}
	return pr.ListGroups(), nil
}
