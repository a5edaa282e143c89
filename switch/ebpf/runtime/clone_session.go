package runtime

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// session is a clone session of the control plane, and where its replicas are.
type session struct {
	target.CloneSession
	at int
}

// SetCloneSession implements [target.Pipeline].
func (p *Pipeline) SetCloneSession(id uint32, s *target.CloneSession) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case id >= memory.MaxSessions:
		return fmt.Errorf("clone session %d: %w", id, target.ErrOutOfRange)
	case s != nil && s.TruncateTo < 0:
		return fmt.Errorf("clone session %d: cut to %d bytes: %w", id, s.TruncateTo,
			target.ErrInvalid)
	}
	old := p.sessions[id]
	if s == nil {
		if old == nil {
			return fmt.Errorf("clone session %d: %w", id, target.ErrNotFound)
		}
		p.writeSession(id, 0, 0)
		delete(p.sessions, id)
		p.replicas.release(old.at)
		return nil
	}
	next := &session{CloneSession: *s}
	next.Replicas = slices.Clone(s.Replicas)
	var ok bool
	if next.at, ok = p.replicas.allocate(max(len(s.Replicas), 1)); !ok {
		return fmt.Errorf("clone session %d: no room for %d replicas: %w", id, len(s.Replicas),
			target.ErrFull)
	}
	for i, r := range s.Replicas {
		p.State.Store(p.Plan.Replicas+(next.at+i)*8, uint64(r.Port)|uint64(r.Instance)<<32)
	}
	p.writeSession(id, uint64(len(s.Replicas))|uint64(next.at)<<32, uint32(s.TruncateTo))
	p.sessions[id] = next
	if old != nil {
		p.replicas.release(old.at)
	}
	return nil
}

// writeSession makes a clone session visible to packets. A program that does not clone has no space
// for sessions, so it keeps none.
func (p *Pipeline) writeSession(id uint32, replicas uint64, cut uint32) {
	if !p.Requests.Clones {
		return
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&p.State.Mem[p.Requests.Cuts+int(id)*4])), cut)
	p.State.Store(p.Requests.Sessions+int(id)*8, replicas)
}

// CloneSessions implements [target.Pipeline].
func (p *Pipeline) CloneSessions() map[uint32]target.CloneSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint32]target.CloneSession{}
	for id, s := range p.sessions {
		c := s.CloneSession
		c.Replicas = slices.Clone(s.Replicas)
		out[id] = c
	}
	return out
}
