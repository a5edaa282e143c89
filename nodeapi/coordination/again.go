package coordination

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Before the server repeats an answer that a caller did not get, the functions below check whether
// the answer is still true. If it is not, the error has the code CodeLeaseGone or CodeNotHeld. Any
// other error means that this is unknown. The argument o belongs to the connection that gets the
// answer. It matters if the request names no lease, because keys that are bound to another
// connection's lease end with that connection.

// LockStays checks whether an answer of Lock is still true.
func (s *Service) LockStays(ctx context.Context, ns string, o *Owner, d nodeapi.LockData, a nodeapi.LockAnswer) error {
	return s.tokenStays(ctx, ns, o, d, a, lockPrefix)
}

// LeadershipStays checks whether an answer of Campaign is still true.
func (s *Service) LeadershipStays(ctx context.Context, ns string, o *Owner, d nodeapi.LockData,
	a nodeapi.LockAnswer) error {
	return s.tokenStays(ctx, ns, o, d, a, electionPrefix)
}

// PermitStays checks whether an answer of Acquire is still true.
func (s *Service) PermitStays(ctx context.Context, ns string, o *Owner, d nodeapi.LockData,
	a nodeapi.LockAnswer) error {
	return s.tokenStays(ctx, ns, o, d, a, permitPrefix)
}

func (s *Service) tokenStays(ctx context.Context, ns string, o *Owner, d nodeapi.LockData, a nodeapi.LockAnswer,
	prefix string) error {
	if !a.Held {
		return nil
	}
	version, err := parseToken(a.Token)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: ns, Name: prefix + d.Name}
	if prefix == permitPrefix {
		key, version = permitOf(key, version)
	}
	return s.stays(ctx, o, d.Lease, a.Lease, key, version)
}

// RegistrationStays checks whether an answer of RegisterService is still true.
func (s *Service) RegistrationStays(ctx context.Context, ns string, o *Owner, d nodeapi.ServiceData,
	a nodeapi.Instance) error {
	key, err := instanceKey(ns, d.Service, a.Instance)
	if err != nil {
		return err
	}
	return s.stays(ctx, o, d.Lease, a.Lease, key, 0)
}

// LeaseStays checks whether an answer of Grant or KeepAlive is still true.
func (s *Service) LeaseStays(ctx context.Context, ns, lease string) error {
	k, err := parseLease(ns, lease)
	if err != nil {
		return err
	}
	return s.lives(ctx, k, k.store())
}

// stays checks whether a key is still bound to the lease in the answer. If version is not 0, the
// key must also still have this version.
func (s *Service) stays(ctx context.Context, o *Owner, asked, lease string, key store.Key, version wire.Version) error {
	k, err := parseLease(key.Namespace, lease)
	if err != nil {
		return err
	}
	if asked == "" && (o == nil || !o.has(k)) {
		return nodeapi.Errorf(nodeapi.CodeLeaseGone, "ask anew, with another once",
			"it hung on the lease of the connection that asked first, and is not this connection's")
	}
	item, err := s.store.Get(ctx, key, false)
	if err != nil {
		return err
	}
	if err := s.lives(ctx, k, key); err != nil {
		return err
	}
	c, err := cell.Decode(item.Value)
	if !item.Found || err != nil || c.Lease != k.id || version != 0 && item.Version != version {
		return nodeapi.Errorf(nodeapi.CodeNotHeld, "ask anew, with another once",
			"it was answered before, and was given back since, or is another's")
	}
	return nil
}

func (s *Service) lives(ctx context.Context, k leaseKey, hangs store.Key) error {
	alive, err := s.alive(ctx, k, hangs, false)
	if err == nil && !alive {
		err = leaseGone(k)
	}
	return err
}
