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

// These are limits and defaults of times to live, in milliseconds.
const (
	MinTTLMillis     = 500
	MaxTTLMillis     = 3_600_000
	DefaultTTLMillis = 10_000
)

// margin returns the additional time that a Service waits, beyond a time to live, before it ends a
// lease. The clock of the program that keeps the lease alive may be slewed, and the clock of the
// Service is not. Package clock defines the margin.
func margin(ttl time.Duration) time.Duration { return ttl / 8 }

// leaseKey identifies a lease.
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

// checkTTL returns the requested time to live as a duration, or an error if it is outside the
// limits.
func checkTTL(millis int) (time.Duration, error) {
	if millis < MinTTLMillis || millis > MaxTTLMillis {
		return 0, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "choose one of these", "a time to live is %d to %d ms, not %d",
			MinTTLMillis, MaxTTLMillis, millis)
	}
	return time.Duration(millis) * time.Millisecond, nil
}

// Grant creates a lease.
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
			// delete the lease, because the write may still be executed and leave a lease that no
			// program knows
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

// KeepAlive renews a lease. It then lives for another time to live.
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

// keepAlive gives the lease's key a new version, which every Service that follows the lease sees.
// It never creates the key, so an ended lease never comes back.
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

// revoke deletes the lease's key, whatever its version is. It needs no version, because no other
// lease ever has the same name.
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

// leaseTTL decodes a lease's cell. It returns false if the lease has ended.
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

// alive reads whether a lease exists. The key `hangs` is bound, or will be bound, to the lease. If
// `eventual` is true, the nearest member of the lease's chain may answer the read.
func (s *Service) alive(ctx context.Context, k leaseKey, hangs store.Key, eventual bool) (bool, error) {
	item, err := s.store.Get(ctx, k.store(), eventual)
	if err != nil {
		return false, err
	}
	ok := false
	if eventual { // do not record the result, because it may be older than what is known
		_, _, ok = leaseTTL(item)
	} else {
		_, ok = s.see(k, item, false)
	}
	if ok {
		s.note(k, hangs)
	}
	return ok, nil
}

// nodeMark returns the part of a node's name that the cell of a lease stores. It is the whole name
// or, if there is no room for it, enough to recognize the name.
func nodeMark(name string, room int) []byte {
	if len(name) <= room {
		return []byte(name)
	}
	sum := sha256.Sum256([]byte(name))
	return append([]byte{0}, sum[:min(8, room-1)]...)
}

// nodeOf returns the name of the node that a mark stands for, and whether it is this node. The name
// is unknown if it belongs to another node and was too long.
func (s *Service) nodeOf(mark []byte) (string, bool) {
	if len(mark) > 0 && mark[0] == 0 {
		if bytes.Equal(mark, nodeMark(s.node, len(mark))) {
			return s.node, true
		}
		return "", false
	}
	return string(mark), string(mark) == s.node
}

// swap writes a value if the key has the version `at`. It finds out whether the write was executed
// even if the store cannot tell. It can do so because no other write over that version has the same
// value. If it cannot find out before ctx ends, the error is CodeOutcomeUnknown.
func (s *Service) swap(ctx context.Context, key store.Key, at wire.Version, value []byte) (store.Item, bool, error) {
	return s.swapAgain(ctx, key, at, value, false)
}

// swapAgain is like swap, but there may have been an earlier attempt. The argument `unknown` says
// that the earlier attempt may have been executed, or may be executed later.
func (s *Service) swapAgain(ctx context.Context, key store.Key, at wire.Version, value []byte, unknown bool) (
	store.Item, bool, error) {
	for pause := (pauses{s: s}); ; {
		item, swapped, err := s.store.CompareAndSwap(ctx, key, at, value)
		if err == nil { // a different version may come from the earlier attempt
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
