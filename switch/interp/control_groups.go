package interp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/target"
)

// SetMulticastGroup implements [target.Pipeline]. Group 0 cannot be set, because in P4 it means "no
// multicast".
func (p *Pipeline) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	if id == 0 || id > 0xffff {
		return fmt.Errorf("multicast group %d: %w", id, target.ErrOutOfRange)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	if replicas == nil {
		if _, ok := p.groups[id]; !ok {
			return fmt.Errorf("multicast group %d: %w", id, target.ErrNotFound)
		}
		delete(p.groups, id)
		return nil
	}
	p.groups[id] = slices.Clone(replicas)
	return nil
}

// MulticastGroups implements [target.Pipeline].
func (p *Pipeline) MulticastGroups() map[uint32][]target.Replica {
	p.cp.Lock()
	defer p.cp.Unlock()
	out := maps.Clone(p.groups)
	for id, r := range out {
		out[id] = slices.Clone(r)
	}
	return out
}

// SetCloneSession implements [target.Pipeline]. Session numbers are 0 to 32767, as in BMv2.
func (p *Pipeline) SetCloneSession(id uint32, s *target.CloneSession) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	if id > 0x7fff {
		return fmt.Errorf("clone session %d: %w", id, target.ErrOutOfRange)
	}
	if s != nil && s.TruncateTo < 0 {
		return fmt.Errorf("clone session %d: cut to %d bytes: %w", id, s.TruncateTo,
			target.ErrInvalid)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	if s == nil {
		if _, ok := p.sessions[id]; !ok {
			return fmt.Errorf("clone session %d: %w", id, target.ErrNotFound)
		}
		delete(p.sessions, id)
		return nil
	}
	c := *s
	c.Replicas = slices.Clone(s.Replicas)
	p.sessions[id] = c
	return nil
}

// CloneSessions implements [target.Pipeline].
func (p *Pipeline) CloneSessions() map[uint32]target.CloneSession {
	p.cp.Lock()
	defer p.cp.Unlock()
	out := maps.Clone(p.sessions)
	for id, s := range out {
		s.Replicas = slices.Clone(s.Replicas)
		out[id] = s
	}
	return out
}
