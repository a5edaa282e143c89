package coordination

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Campaign acquires the leadership, or waits for it. The value in d identifies the leader to other
// programs.
func (s *Service) Campaign(ctx context.Context, ns string, o *Owner, d nodeapi.LockData) (nodeapi.LockAnswer, error) {
	key, err := named(ns, electionPrefix, "election", d.Name, 0)
	if err != nil {
		return nodeapi.LockAnswer{}, err
	}
	value := []byte(d.Value)
	if err := s.fits(ns, "the value that tells who leads", cell.Lock, value); err != nil {
		return nodeapi.LockAnswer{}, err
	}
	return s.hold(ctx, ns, o, d, taking{keys: []store.Key{key}, line: key, value: value})
}

// Resign gives up the leadership.
func (s *Service) Resign(ctx context.Context, ns string, d nodeapi.UnlockData) error {
	key, err := named(ns, electionPrefix, "election", d.Name, 0)
	if err != nil {
		return err
	}
	version, err := parseToken(d.Token)
	if err != nil {
		return err
	}
	return s.giveBack(ctx, key, version)
}

// Leader returns the current leader.
func (s *Service) Leader(ctx context.Context, ns string, d nodeapi.LeaderData) (nodeapi.LeaderAnswer, error) {
	key, err := named(ns, electionPrefix, "election", d.Name, 0)
	if err != nil {
		return nodeapi.LeaderAnswer{}, err
	}
	item, err := s.store.Get(ctx, key, false)
	for err == nil {
		var free bool
		switch _, free, err = s.holder(ctx, item); {
		case err != nil:
			return nodeapi.LeaderAnswer{}, err
		case !item.Found:
			return nodeapi.LeaderAnswer{}, nil
		case !free: // the lease is alive, so it was also alive when the item was read
			c, err := cell.Decode(item.Value)
			return nodeapi.LeaderAnswer{Found: true, Value: string(c.Value), Token: token(item.Version)}, err
		}
		before := item.Version
		if item, err = s.store.Get(ctx, key, false); err == nil && item.Version == before {
			// the leader's lease had ended before the item was read, so there is no leader
			return nodeapi.LeaderAnswer{}, nil
		}
	}
	return nodeapi.LeaderAnswer{}, err
}
