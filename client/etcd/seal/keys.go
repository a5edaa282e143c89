package seal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// DefaultAge is the default age at which the sealing key is replaced.
	DefaultAge = 24 * time.Hour
	// MaxSeals is how many cells one gateway seals with a key before it asks for a new key.
	MaxSeals = 1 << 28
	// Kept is the minimum time for which a replaced sealing key is kept. A gateway that does not
	// know the newer key may still seal with the old key, and other gateways must be able to open
	// those cells.
	Kept = 24 * time.Hour

	again    = 100 * time.Millisecond // minimum time between two reads of etcd for an unknown key
	due      = time.Minute            // time between two checks of the key's age
	askWait  = 5 * time.Second
	tryAgain = time.Second
)

// Prefix returns the prefix of the etcd keys that hold sealing keys. Clients cannot read these keys
// through a gateway.
func Prefix(own string) string { return own + "seal/" }

// errChanged means that another gateway has changed the keys at the same time.
var errChanged = errors.New("somebody else has changed the keys")

// Keys manages the sealing keys in etcd. It has a ring of the keys as they were last read. It is
// safe for concurrent use.
type Keys struct {
	kv   clientv3.KV
	name string
	ring atomic.Pointer[Ring]

	mu       sync.Mutex // held during a request to etcd
	revision int64      // mod revision of the keys when the ring was read
	began    time.Time  // the start of the last request that etcd has answered
}

// NewKeys creates a Keys that has read nothing yet. Ensure must succeed before anything is sealed.
// prefix is the prefix of all of the gateways' own keys.
func NewKeys(kv clientv3.KV, prefix string) *Keys {
	return &Keys{kv: kv, name: Prefix(prefix) + "keys"}
}

// Ring returns the keys as they were last read, or nil if they were not read yet.
func (k *Keys) Ring() *Ring { return k.ring.Load() }

// Ensure reads the keys. If there are none, it makes the first key.
func (k *Keys) Ensure(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		there, err := k.load(ctx)
		if err != nil || there {
			return err
		}
		r, err := NewRing()
		if err != nil {
			return err
		}
		if err := k.store(ctx, r, 0); err != nil && !errors.Is(err, errChanged) {
			return err
		}
	}
}

// Load reads the keys; it fails if there are none.
func (k *Keys) Load(ctx context.Context) error {
	return k.change(ctx, func(*Ring) (*Ring, error) { return nil, nil })
}

// load reads the keys, and reports whether there are any. The caller has locked mu.
func (k *Keys) load(ctx context.Context) (bool, error) {
	began := time.Now()
	r, err := k.kv.Get(ctx, k.name)
	if err != nil {
		return false, fmt.Errorf("reading the keys that cells are sealed with from etcd: %w", err)
	}
	k.began = began
	if len(r.Kvs) == 0 {
		return false, nil
	}
	kv := r.Kvs[0]
	if kv.ModRevision == k.revision {
		return true, nil
	}
	ring, err := parse(kv.Value)
	if err != nil {
		return false, fmt.Errorf("%s in etcd: %w (with it deleted the next gateway makes new ones, and every placed key is placed anew)", k.name, err)
	}
	k.use(ring, kv.ModRevision)
	return true, nil
}

// store writes a ring if the keys have not changed since the revision `was`, and then adopts the
// ring. Revision 0 means that the keys were never written. The caller has locked mu.
func (k *Keys) store(ctx context.Context, r *Ring, was int64) error {
	text, err := r.marshal()
	if err != nil {
		return err
	}
	t, err := k.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.name), "=", was)).
		Then(clientv3.OpPut(k.name, text)).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("writing the keys that cells are sealed with to etcd: %w", err)
	case !t.Succeeded:
		return errChanged
	}
	k.use(r, t.Header.Revision)
	return nil
}

// use adopts a ring that was read from etcd at a revision. The caller has locked mu.
func (k *Keys) use(r *Ring, revision int64) {
	if old := k.ring.Load(); old != nil && old.primary == r.primary {
		r.sealed.Store(old.Sealed())
	}
	k.ring.Store(r)
	k.revision = revision
}

// change computes a new ring from the ring in etcd and writes it. It repeats both until the write
// succeeds. If the function `how` returns nil, nothing is changed.
func (k *Keys) change(ctx context.Context, how func(*Ring) (*Ring, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		there, err := k.load(ctx)
		if err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("there is no %s in etcd: no gateway has been started with --controller and this --prefix", k.name)
		}
		next, err := how(k.ring.Load())
		if err != nil || next == nil {
			return err
		}
		if err := k.store(ctx, next, k.revision); !errors.Is(err, errChanged) {
			return err
		}
	}
}

// Rotate makes a new sealing key. The existing keys stay, so that old cells can be opened, unless
// drop is set. If drop is set, they are deleted at once. Then no existing sealed cell can be
// opened, and every placed key is placed again.
func (k *Keys) Rotate(ctx context.Context, drop bool) (id uint32, err error) {
	err = k.change(ctx, func(r *Ring) (*Ring, error) {
		next, err := r.Rotated()
		if err != nil {
			return nil, err
		}
		if drop {
			var old []uint32
			for id := range r.Keys() {
				old = append(old, id)
			}
			if next, err = next.Without(old...); err != nil {
				return nil, err
			}
		}
		id, _ = next.Primary()
		return next, nil
	})
	return id, err
}

// RotateIf makes a new key if the current sealing key has the number primary. If several gateways
// find that the key is too old, only one of them makes a new key.
func (k *Keys) RotateIf(ctx context.Context, primary uint32) error {
	return k.change(ctx, func(r *Ring) (*Ring, error) {
		if id, _ := r.Primary(); id != primary {
			return nil, nil
		}
		return r.Rotated()
	})
}

// Prune drops the keys that were replaced at least [Kept] ago and are no longer in use. used has
// the keys with which slots are sealed; the caller must have read all slots.
func (k *Keys) Prune(ctx context.Context, used map[uint32]bool, now time.Time) error {
	return k.change(ctx, func(r *Ring) (*Ring, error) {
		var old []uint32
		for id := range r.made {
			if !used[id] && id != r.primary && now.Sub(r.replaced(id)) >= Kept {
				old = append(old, id)
			}
		}
		if len(old) == 0 {
			return nil, nil
		}
		return r.Without(old...)
	})
}

// Want asks etcd for a key, and reports whether the key is then known. The request to etcd begins
// after the call of Want. It asks at most ten times a second, and waits for its turn until ctx
// ends.
func (k *Keys) Want(ctx context.Context, id uint32) (bool, error) {
	called := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Ring().Knows(id) {
		return true, nil
	}
	if !k.began.After(called) {
		if wait := again - time.Since(k.began); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		there, err := k.load(ctx)
		if err != nil {
			return false, err
		}
		if !there {
			return false, fmt.Errorf("there is no %s in etcd any more", k.name)
		}
	}
	return k.Ring().Knows(id), nil
}

// Watcher is the part of etcd's client that Follow needs.
type Watcher interface {
	Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan
}

// Follow updates the ring when the keys in etcd change, until ctx ends. It replaces the current
// sealing key when the key has sealed too many cells or is older than age. If age is 0, no key is
// too old.
func (k *Keys) Follow(ctx context.Context, etcd Watcher, age time.Duration, log *slog.Logger) {
	said := ""
	look := func() {
		err := k.look(ctx, age)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && ctx.Err() == nil {
			if said = text; said != "" {
				log.Warn("the keys that cells are sealed with: those that were read before are used", "error", err)
			}
		}
	}
	for ctx.Err() == nil {
		look()
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		news := etcd.Watch(watching, k.name, clientv3.WithRev(k.known()+1))
		for open := true; open && ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-time.After(due):
				look()
			case _, open = <-news:
				if open {
					look()
				}
			}
		}
		stop()
		select {
		case <-ctx.Done():
		case <-time.After(tryAgain):
		}
	}
}

// known returns the revision at which the ring was read.
func (k *Keys) known() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.revision
}

// look reads the keys, and makes a new sealing key if the current one must be replaced.
func (k *Keys) look(ctx context.Context, age time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if err := k.Ensure(ctx); err != nil {
		return err
	}
	r := k.Ring()
	id, made := r.Primary()
	if age > 0 && time.Since(made) >= age || r.Sealed() >= MaxSeals {
		return k.RotateIf(ctx, id)
	}
	return nil
}
