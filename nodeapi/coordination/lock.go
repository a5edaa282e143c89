package coordination

import (
	"context"
	"strconv"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Lock acquires a lock, or waits for it. The owner o belongs to the connection. It is needed if d
// names no lease.
func (s *Service) Lock(ctx context.Context, ns string, o *Owner, d nodeapi.LockData) (nodeapi.LockAnswer, error) {
	key, err := named(ns, lockPrefix, "lock", d.Name, 0)
	if err != nil {
		return nodeapi.LockAnswer{}, err
	}
	return s.hold(ctx, ns, o, d, taking{keys: []store.Key{key}, line: key})
}

// Unlock releases a lock.
func (s *Service) Unlock(ctx context.Context, ns string, d nodeapi.UnlockData) error {
	key, err := named(ns, lockPrefix, "lock", d.Name, 0)
	if err != nil {
		return err
	}
	version, err := parseToken(d.Token)
	if err != nil {
		return err
	}
	return s.giveBack(ctx, key, version)
}

func token(v wire.Version) string { return strconv.FormatUint(uint64(v), 10) }

func parseToken(token string) (wire.Version, error) {
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != token {
		return 0, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "use the token that was answered", "%q is not a token", token)
	}
	return wire.Version(n), nil
}

// hold acquires a lock, leadership or permit as described by t. It uses the lease that d names or,
// if d names none, a lease of o.
func (s *Service) hold(ctx context.Context, ns string, o *Owner, d nodeapi.LockData, t taking) (nodeapi.LockAnswer,
	error) {
	if d.WaitMillis != nil && *d.WaitMillis < 0 {
		return nodeapi.LockAnswer{}, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "leave it out, or give milliseconds",
			"waitMs is %d", *d.WaitMillis)
	}
	t.s, t.answer, t.wake = s, nodeapi.LockAnswer{Name: d.Name}, make(chan struct{}, 1)
	var err error
	switch {
	case d.Lease != "":
		t.lease, err = parseLease(ns, d.Lease)
	case o == nil:
		err = nodeapi.Errorf(nodeapi.CodeInvalidArgument, "name a lease", "there is no lease, and no connection to make one for")
	default:
		t.lease, err = o.lease(ctx, ns, d.TTLMillis)
	}
	if err != nil {
		return nodeapi.LockAnswer{}, err
	}
	switch {
	case d.WaitMillis == nil:
	case *d.WaitMillis == 0:
		t.try = true
	default:
		over := make(chan struct{})
		t.over = over
		defer s.clock.AfterFunc(time.Duration(*d.WaitMillis)*time.Millisecond, func() { close(over) })()
	}
	answer, err := t.run(ctx)
	if answer.Held && d.Lease == "" && !o.has(t.lease) {
		// the lease ended while the lock was acquired, so another program may hold the lock
		return nodeapi.LockAnswer{}, leaseGone(t.lease)
	}
	return answer, err
}

// taking is a call that acquires any one of several equivalent keys, for example the permits of a
// semaphore.
type taking struct {
	s    *Service
	keys []store.Key
	line store.Key // key of the queue in which callers wait for these keys
	// computes the token; if nil, the token is the version
	token func(store.Key, wire.Version) (string, error)
	value []byte // content of the cell in addition to the lease
	lease leaseKey
	try   bool // if set, the call does not wait
	// the call stops waiting when this channel is closed; if nil, it waits until its context ends
	over   <-chan struct{}
	wake   chan struct{}
	answer nodeapi.LockAnswer
}

func (t *taking) run(ctx context.Context) (nodeapi.LockAnswer, error) {
	leave, turn, err := t.queue(ctx)
	if !turn || err != nil {
		return t.answer, err
	}
	defer leave()
	for pause := (pauses{s: t.s}); ; {
		held, seen, err := t.attempt(ctx)
		switch {
		case held || t.try:
			return t.answer, err
		case err != nil && (!passing(err) || !nothingDone(err)):
			return t.answer, err
		case err != nil:
			if !pause.wait(ctx) {
				return t.answer, err
			}
			select {
			case <-t.over:
				return t.answer, err
			default:
			}
			continue
		}
		pause = pauses{s: t.s}
		if more, err := t.wait(ctx, seen); !more {
			return t.answer, err
		}
	}
}

// held is a key that another caller holds. It has the item that was read, and the lease of the
// holder.
type held struct {
	item  store.Item
	lease leaseKey
}

// attempt tries to acquire the first free key. If no key is free, it returns the holders of the
// keys.
func (t *taking) attempt(ctx context.Context) (bool, []held, error) {
	var others []held
	for _, key := range t.keys {
		item, free := t.s.wasFree(key)
		var err error
		if !free {
			item, err = t.s.store.Get(ctx, key, false)
		}
		for err == nil {
			var holder leaseKey
			var free bool
			if holder, free, err = t.s.holder(ctx, item); err != nil {
				break
			}
			if !free {
				others = append(others, held{item, holder})
				break
			}
			var taken bool
			if item, taken, err = t.take(ctx, item); taken && err == nil {
				t.answer.Held, t.answer.Lease = true, t.lease.id.String()
				t.answer.Token = token(item.Version)
				if t.token != nil {
					t.answer.Token, err = t.token(key, item.Version)
				}
				return true, nil, err
			}
		}
		if err != nil {
			return false, nil, err
		}
	}
	return false, others, nil
}

// holder returns the lease that a key is bound to. It returns false if the key is free, because it
// does not exist or its lease has ended.
func (s *Service) holder(ctx context.Context, item store.Item) (leaseKey, bool, error) {
	if !item.Found {
		return leaseKey{}, true, nil
	}
	c, err := cell.Decode(item.Value)
	if err != nil || !c.Hangs() {
		return leaseKey{}, false, nodeapi.Errorf(nodeapi.CodeInternal, "delete the key",
			"the value of %q was not written by the node API", item.Key.Name)
	}
	k := leaseKey{item.Key.Namespace, c.Lease}
	alive, err := s.alive(ctx, k, item.Key, false)
	return k, !alive, err
}

// take acquires a free key, if the key still has the version of item. If possible, it uses one
// transaction that checks the lease and writes the key. This needs a store with transactions, and a
// lease that existed when it was last seen. Otherwise, or if the transaction fails, take reads the
// caller's lease and writes the key. If the lease existed when it was last seen, take does both in
// parallel, and otherwise it reads first. If the lease has ended, take releases the key again.
func (t *taking) take(ctx context.Context, item store.Item) (store.Item, bool, error) {
	c := cell.Cell{Kind: cell.Lock, Lease: t.lease.id, Value: t.value}
	draw(c.Nonce[:])
	lease, seen := t.s.lastSeen(t.lease)
	unsure := false // whether the transaction may have acquired the key
	if seen && t.s.transacts(item, lease) {
		after, taken, err := t.s.swapWith(ctx, item, lease, c.Encode())
		switch unsure = err != nil && !nothingDone(err); {
		case taken:
			t.s.bind(t.lease, item.Key)
			t.s.hasTaken(t.lease, after)
			return after, true, nil
		case err != nil && !unsure:
			return item, false, err
		}
	}
	looked := make(chan error, 1)
	look := func() {
		alive, err := t.s.alive(ctx, t.lease, item.Key, false)
		if err == nil && !alive {
			err = leaseGone(t.lease)
		}
		looked <- err
	}
	if seen {
		go look()
	} else if look(); len(looked) > 0 {
		if err := <-looked; err != nil {
			return item, false, err
		}
		looked <- nil
	}
	after, taken, err := t.s.swapAgain(ctx, item.Key, item.Version, c.Encode(), unsure)
	switch {
	case err != nil && !nothingDone(err):
		t.s.behind(func(ctx context.Context) { t.s.undo(ctx, item, c.Encode()) })
	case taken:
		t.s.bind(t.lease, item.Key)
	}
	dead := <-looked
	switch {
	case err != nil:
		return after, taken, err
	case dead != nil && taken:
		t.s.behind(func(ctx context.Context) { t.s.undo(ctx, item, c.Encode()) })
		fallthrough
	case dead != nil:
		return item, false, dead
	case taken:
		t.s.hasTaken(t.lease, after)
	}
	return after, taken, nil
}

// transacts reports whether one transaction may compare and write the keys of these items.
func (s *Service) transacts(items ...store.Item) bool {
	for _, i := range items {
		if i.Version == 0 || !s.store.Transacts(i.Key.Namespace, i.Version) {
			return false
		}
	}
	return true
}

// swapWith writes a value to a key if two keys are unchanged: the written key must still have the
// version of `over`, and another key the version of `with`.
func (s *Service) swapWith(ctx context.Context, over, with store.Item, value []byte) (store.Item, bool, error) {
	t := store.Transaction{Namespace: over.Key.Namespace,
		Compare: []store.Comparison{{Name: with.Key.Name, Version: with.Version},
			{Name: over.Key.Name, Version: over.Version}},
		Write: []store.Write{{Name: over.Key.Name, Value: value}}}
	done, err := s.store.Transact(ctx, t)
	if err != nil || !done.Done {
		return over, false, err
	}
	return store.Item{Key: over.Key, Found: true, Value: value, Version: done.Versions[0]}, true, nil
}

// undo determines the result of an abandoned take, and releases the key if it was acquired. It also
// covers the case that the take is executed later.
func (s *Service) undo(ctx context.Context, item store.Item, value []byte) {
	for end, pause := s.clock.Now().Add(tryFor), (pauses{s: s}); ; {
		after, taken, err := s.swap(ctx, item.Key, item.Version, value)
		if taken && err == nil {
			err = s.giveBack(ctx, after.Key, after.Version)
		}
		if err == nil || !passing(err) || s.clock.Now().After(end) || !pause.wait(ctx) {
			return
		}
	}
}

// wait waits until one of the keys may be free. It returns false if the call must end without the
// key.
func (t *taking) wait(ctx context.Context, others []held) (bool, error) {
	lost := make(chan struct{})
	defer t.s.unfollow(t.s.follow(t.lease, true, func(gone bool) {
		if gone {
			close(lost)
		}
	}))
	watch := store.Watch{Namespace: t.lease.namespace, After: map[string]wire.Version{}}
	for _, h := range others {
		watch.Keys = append(watch.Keys, h.item.Key.Name)
		watch.After[h.item.Key.Name] = h.item.Version
		defer t.s.unfollow(t.s.follow(h.lease, true, func(gone bool) {
			if gone {
				t.rouse()
			}
		}))
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = t.s.store.Watch(watching, watch, func([]store.Change) { t.rouse() })
		if t.s.sleep(watching, longestPause) { // the watch has failed, so read the keys again
			t.rouse()
		}
	}()
	select {
	case <-t.wake:
		return true, nil
	case <-lost:
		return false, leaseGone(t.lease)
	case <-t.over:
		return false, nil
	case <-ctx.Done():
		return false, ended(ctx, "waiting for "+t.answer.Name)
	}
}

func (t *taking) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// giveBack deletes a key that was acquired with a version. It deletes nothing if the key has
// another version.
func (s *Service) giveBack(ctx context.Context, key store.Key, version wire.Version) error {
	unsure := false // whether an earlier attempt may have released the key
	if k, ok := s.takenAs(key, version); ok {
		after, deleted, err := s.store.CompareAndDelete(ctx, key, version)
		switch {
		case err == nil && deleted:
			s.unbind(k, key)
			s.hasFreed(after)
			return nil
		case err == nil:
			return notHeld(version)
		case nothingDone(err):
			s.hasTaken(k, store.Item{Key: key, Version: version})
			return err
		}
		unsure = true
	}
	item, err := s.store.Get(ctx, key, false)
	if err != nil {
		return err
	}
	if !item.Found || item.Version != version {
		if unsure {
			return nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "take it again",
				"it was given back, or had ended before: whether it was held by token %d until now is not known", uint64(version))
		}
		return notHeld(version)
	}
	// From here on, any write that replaces this version releases the key.
	for pause := (pauses{s: s}); ; {
		after, deleted, err := s.store.CompareAndDelete(ctx, key, version)
		switch {
		case err == nil:
			if deleted {
				s.hasFreed(after)
			}
			if c, bad := cell.Decode(item.Value); bad == nil && c.Hangs() {
				s.unbind(leaseKey{key.Namespace, c.Lease}, key)
			}
			return nil
		case nothingDone(err) || !pause.wait(ctx):
			return err
		}
	}
}

func notHeld(version wire.Version) error {
	return nodeapi.Errorf(nodeapi.CodeNotHeld, "take it again", "it is not held by token %d (any more)", uint64(version))
}

// line is a queue of calls that wait at this Service for the same keys. The first call in the queue
// competes with other Services. The other calls wait for their turn, in order of arrival.
type line struct {
	waiting []chan struct{}
}

// queue waits until it is the call's turn. It returns false if the call ended before.
func (t *taking) queue(ctx context.Context) (leave func(), turn bool, err error) {
	s, name := t.s, t.line
	s.mu.Lock()
	l := s.lines[name]
	if l != nil && t.try {
		s.mu.Unlock()
		return nil, false, nil
	}
	if l == nil {
		l = &line{}
		s.lines[name] = l
	}
	my := make(chan struct{})
	l.waiting = append(l.waiting, my)
	if l.waiting[0] == my {
		close(my)
	}
	s.mu.Unlock()
	leave = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, w := range l.waiting {
			if w == my {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				if len(l.waiting) == 0 {
					delete(s.lines, name)
				} else if i == 0 {
					close(l.waiting[0])
				}
				return
			}
		}
	}
	select { // first without ctx.Done, because a call of Done counts as the beginning of a wait
	case <-my:
		return leave, true, nil
	default:
	}
	select {
	case <-my:
		return leave, true, nil
	case <-t.over:
		leave()
		return nil, false, nil
	case <-ctx.Done():
		leave()
		return nil, false, ended(ctx, "waiting for "+t.answer.Name)
	}
}
