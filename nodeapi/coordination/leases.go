package coordination

import (
	"context"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

type holderKey struct{}

// WithHolder sets the holder of the leases that are granted with the returned context, by Grant or
// for an Owner. The Service does not interpret holder. LeaseState and Holder return it.
func WithHolder(ctx context.Context, holder any) context.Context {
	return context.WithValue(ctx, holderKey{}, holder)
}

// heldBy records the holder of a lease that this Service has granted.
func (s *Service) heldBy(k leaseKey, holder any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[k]; l != nil {
		l.holder = holder
	}
}

// Holder returns the recorded holder of a lease. It returns nil if another Service, or an earlier
// process of this Service, granted the lease.
func (s *Service) Holder(ns, lease string) any {
	k, err := parseLease(ns, lease)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[k]; l != nil {
		return l.holder
	}
	return nil
}

// LeaseState describes a lease, whose key was just read linearizably. It returns false if the key
// is not a lease's key, or the lease has ended. The time left is the longest time that the lease
// still lives without a renewal. It counts from when this Service first saw the newest version of
// the lease.
func (s *Service) LeaseState(item store.Item) (state nodeapi.LeaseState, holder any, ok bool) {
	id, isLease := strings.CutPrefix(item.Key.Name, leasePrefix)
	k, err := parseLease(item.Key.Namespace, id)
	if !isLease || err != nil {
		return nodeapi.LeaseState{}, nil, false
	}
	ttl, ok := s.see(k, item, false)
	if !ok {
		return nodeapi.LeaseState{}, nil, false
	}
	left, mark := ttl, []byte(nil)
	if c, _, ok := leaseTTL(item); ok {
		mark = c.Value
	}
	s.mu.Lock()
	if l := s.leases[k]; l != nil {
		left, holder = max(0, l.since.Add(l.ttl).Sub(s.clock.Now())), l.holder
	}
	s.mu.Unlock()
	node, _ := s.nodeOf(mark)
	return nodeapi.LeaseState{Lease: id, TTLMillis: int(ttl.Milliseconds()), LeftMillis: int(left / time.Millisecond),
		Node: node}, holder, true
}

// heldKinds lists the prefixes of the names of keys that a lease can hold, and the kind of thing
// that each prefix stands for.
var heldKinds = []struct{ prefix, kind string }{
	{lockPrefix, nodeapi.HeldLock},
	{electionPrefix, nodeapi.HeldElection},
	{permitPrefix, nodeapi.HeldPermit},
	{servicePrefix, nodeapi.HeldService},
}

// HeldOf returns which lease holds a key, and what the key stands for. It returns false if no lease
// holds the key.
func HeldOf(item store.Item) (nodeapi.Held, bool) {
	c, err := cell.Decode(item.Value)
	if !item.Found || err != nil || !c.Hangs() {
		return nodeapi.Held{}, false
	}
	h := nodeapi.Held{Lease: c.Lease.String(), Kind: nodeapi.HeldKey, Name: item.Key.Name}
	for _, k := range heldKinds {
		if name, ok := strings.CutPrefix(item.Key.Name, k.prefix); ok {
			h.Kind, h.Name = k.kind, name
		}
	}
	return h, true
}
