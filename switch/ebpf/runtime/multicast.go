package runtime

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// group is a multicast group of the control plane, and where its replicas are.
type group struct {
	replicas []target.Replica
	at       int
}

// SetMulticastGroup implements [target.Pipeline].
func (p *Pipeline) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	if id == 0 || id >= memory.MaxGroups {
		return fmt.Errorf("multicast group %d: ids are 1 to %d: %w", id, memory.MaxGroups-1,
			target.ErrInvalid)
	}
	old := p.groups[id]
	word := p.Plan.Groups + int(id)*8
	if replicas == nil {
		if old == nil {
			return fmt.Errorf("multicast group %d: %w", id, target.ErrNotFound)
		}
		p.State.Store(word, 0)
		delete(p.groups, id)
		p.replicas.release(old.at)
		return nil
	}
	g := &group{replicas: slices.Clone(replicas)}
	var ok bool
	if g.at, ok = p.replicas.allocate(max(len(replicas), 1)); !ok {
		return fmt.Errorf("multicast group %d: no room for %d replicas: %w", id, len(replicas),
			target.ErrFull)
	}
	for i, r := range replicas {
		p.State.Store(p.Plan.Replicas+(g.at+i)*8, uint64(r.Port)|uint64(r.Instance)<<32)
	}
	p.State.Store(word, uint64(len(replicas))|uint64(g.at)<<32)
	p.groups[id] = g
	if old != nil {
		p.replicas.release(old.at)
	}
	return nil
}

// MulticastGroups implements [target.Pipeline].
func (p *Pipeline) MulticastGroups() map[uint32][]target.Replica {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint32][]target.Replica{}
	for id, g := range p.groups {
		out[id] = slices.Clone(g.replicas)
	}
	return out
}
