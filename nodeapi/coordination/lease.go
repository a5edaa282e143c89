package coordination

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Times to live, in milliseconds.
const (
	MinTTLMillis     = 500
	MaxTTLMillis     = 3_600_000
	DefaultTTLMillis = 10_000
)

// margin is added to a time to live before another Service ends a lease. The clock of the program
// that keeps the lease alive may be slewed, and the Service's is not: see package clock, which
// defines the margin.
func margin(ttl time.Duration) time.Duration { return ttl / 8 }

// leaseKey names a lease.
type leaseKey struct {
	namespace string
	id        cell.LeaseID
}

func (k leaseKey) store() store.Key {
	return store.Key{Namespace: k.namespace, Name: leasePrefix + k.id.String()}
}

func parseLease(ns, lease string) (leaseKey, error) {
	id, err := cell.ParseLeaseID(lease)
	if err != nil {
		return leaseKey{}, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "use a lease that grant has answered", "%v", err)
	}
	return leaseKey{ns, id}, nil
}

func leaseGone(k leaseKey) error {
	return nodeapi.Errorf(nodeapi.CodeLeaseGone, "grant a new one", "the lease %s has run out, or there never was such a one", k.id)
}

// checkTTL returns the requested time to live.
func checkTTL(millis int) (time.Duration, error) {
	if millis < MinTTLMillis || millis > MaxTTLMillis {
		return 0, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "choose one of these", "a time to live is %d to %d ms, not %d",
			MinTTLMillis, MaxTTLMillis, millis)
	}
	return time.Duration(millis) * time.Millisecond, nil
}

// Grant makes a lease.
func (s *Service) Grant(ctx context.Context, ns string, d nodeapi.GrantData) (nodeapi.LeaseAnswer, error) {
	k, err := s.grant(ctx, ns, d.TTLMillis)
	if err != nil {
		return nodeapi.LeaseAnswer{}, err
	}
	return nodeapi.LeaseAnswer{Lease: k.id.String(), TTLMillis: d.TTLMillis}, nil
}

func (s *Service) grant(ctx context.Context, ns string, millis int) (leaseKey, error) {
	if _, err := checkTTL(millis); err != nil {
		return leaseKey{}, err
	}
	value := cell.Cell{Kind: cell.Lease, TTLMillis: millis,
		Value: nodeMark(s.node, s.store.MaxValue(ns)-cell.Lease.Overhead())}.Encode()
	for {
		k := leaseKey{namespace: ns}
		draw(k.id[:])
		begin := s.clock.Now()
		item, mine, err := s.swap(ctx, k.store(), 0, value)
		switch {
		case err != nil && !nothingDone(err):
			// the write may still be executed, leaving a lease that nobody knows about
			s.behind(func(ctx context.Context) {
				if _, mine, _ := s.swap(ctx, k.store(), 0, value); mine {
					_ = s.revoke(ctx, k)
				}
			})
			fallthrough
		case err != nil:
			return leaseKey{}, err
		case mine:
			s.see(k, item, true)
			s.livesSince(k, begin)
			s.heldBy(k, ctx.Value(holderKey{}))
			return k, nil
		}
	}
}

// KeepAlive renews a lease for another time to live.
func (s *Service) KeepAlive(ctx context.Context, ns string, d nodeapi.LeaseData) (nodeapi.LeaseAnswer, error) {
	k, err := parseLease(ns, d.Lease)
	if err != nil {
		return nodeapi.LeaseAnswer{}, err
	}
	ttl, err := s.keepAlive(ctx, k)
	if err != nil {
		return nodeapi.LeaseAnswer{}, err
	}
	return nodeapi.LeaseAnswer{Lease: d.Lease, TTLMillis: int(ttl.Milliseconds())}, nil
}

// keepAlive gives the lease's key a new version, which every Service that tracks the lease sees. It
// never creates the key, so a lease that is gone stays gone.
func (s *Service) keepAlive(ctx context.Context, k leaseKey) (time.Duration, error) {
	begin := s.clock.Now()
	item, known := s.lastSeen(k)
	pause := pauses{s: s}
	for {
		if !known {
			var err error
			if item, err = s.store.Get(ctx, k.store(), false); err != nil {
				return 0, err
			}
		}
		ttl, ok := s.see(k, item, false)
		if !ok {
			return 0, leaseGone(k)
		}
		next, swapped, err := s.store.CompareAndSwap(ctx, k.store(), item.Version, item.Value)
		switch {
		case swapped && err == nil:
			s.see(k, next, true)
			s.livesSince(k, begin)
			return ttl, nil
		case err == nil:
			item, known = next, true
		case nothingDone(err) || !pause.wait(ctx):
			return 0, err
		default:
			known = false
		}
	}
}

// Revoke ends a lease, and deletes the keys that are bound to it.
func (s *Service) Revoke(ctx context.Context, ns string, d nodeapi.LeaseData) error {
	k, err := parseLease(ns, d.Lease)
	if err != nil {
		return err
	}
	item, err := s.store.Get(ctx, k.store(), false)
	if err != nil {
		return err
	}
	if _, ok := s.see(k, item, false); !ok {
		return leaseGone(k)
	}
	return s.revoke(ctx, k)
}

// revoke deletes the lease's key, whatever its version: no other lease ever has that name.
func (s *Service) revoke(ctx context.Context, k leaseKey) error {
	pause := pauses{s: s}
	for {
		_, err := s.store.Delete(ctx, k.store())
		switch {
		case err == nil:
			s.lost(k)
			return nil
		case nothingDone(err) || !pause.wait(ctx):
			return err
		}
	}
}

// leaseTTL reads a lease's cell; false: it is gone.
func leaseTTL(item store.Item) (cell.Cell, time.Duration, bool) {
	if !item.Found {
		return cell.Cell{}, 0, false
	}
	c, err := cell.Decode(item.Value)
	if err != nil || c.Kind != cell.Lease {
		return cell.Cell{}, 0, false
	}
	return c, time.Duration(c.TTLMillis) * time.Millisecond, true
}

// alive reads whether a lease exists, for a key that is or will be bound to it. eventual: read from
// the nearest member of its chain.
func (s *Service) alive(ctx context.Context, k leaseKey, hangs store.Key, eventual bool) (bool, error) {
	item, err := s.store.Get(ctx, k.store(), eventual)
	if err != nil {
		return false, err
	}
	ok := false
	if eventual { // the result may be older than what is known, so it proves nothing
		_, _, ok = leaseTTL(item)
	} else {
		_, ok = s.see(k, item, false)
	}
	if ok {
		s.note(k, hangs)
	}
	return ok, nil
}

// nodeMark is the part of its node's name that a lease's cell keeps: all of it or, if there is no
// room, enough to recognize it.
func nodeMark(name string, room int) []byte {
	if len(name) <= room {
		return []byte(name)
	}
	sum := sha256.Sum256([]byte(name))
	return append([]byte{0}, sum[:min(8, room-1)]...)
}

// nodeOf returns the name for a mark, and whether it is this node. The name of another node is
// unknown if it was too long.
func (s *Service) nodeOf(mark []byte) (string, bool) {
	if len(mark) > 0 && mark[0] == 0 {
		if bytes.Equal(mark, nodeMark(s.node, len(mark))) {
			return s.node, true
		}
		return "", false
	}
	return string(mark), string(mark) == s.node
}

// swap writes value over version at, and finds out whether it did, even if the store cannot tell,
// because no other write over that version has the same value. If it cannot find out before ctx
// ends, the error is CodeOutcomeUnknown.
func (s *Service) swap(ctx context.Context, key store.Key, at wire.Version, value []byte) (store.Item, bool, error) {
	return s.swapAgain(ctx, key, at, value, false)
}

// swapAgain is swap after an earlier attempt. unknown says that it may have been executed, or may
// be later.
func (s *Service) swapAgain(ctx context.Context, key store.Key, at wire.Version, value []byte, unknown bool) (
	store.Item, bool, error) {
	for pause := (pauses{s: s}); ; {
		item, swapped, err := s.store.CompareAndSwap(ctx, key, at, value)
		if err == nil { // another version may come from an earlier attempt
			return item, swapped || item.Found && bytes.Equal(item.Value, value), nil
		}
		unknown = unknown || !nothingDone(err)
		switch {
		case !unknown:
			return item, false, err
		case !pause.wait(ctx):
			return item, false, nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "ask for it again, or wait until the lease has gone",
				"whether %q was written could not be found out: %v", key.Name, err)
		}
	}
}
