package coordination

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// lease is what this Service knows about a lease. It has the newest version that the Service has
// seen, and the time when it saw this version. If no newer version appears until the time to live
// and the margin have passed, this Service ends the lease. Service.mu guards the fields.
type lease struct {
	key     leaseKey
	version wire.Version // newest version that was seen; 0 means that the lease was not read yet
	value   []byte
	mark    []byte // mark of the node that granted the lease, see nodeMark
	ttl     time.Duration
	since   time.Time // a time at which the lease already had this version
	// newest is the start of a read that found this version. So no newer version existed at that
	// time. Zero means that no such time is known for this version.
	newest time.Time
	// lives is a time before this version was written. So the holder of the lease was alive after
	// that time. Zero means that no such time is known.
	lives time.Time
	// asking is set during a read that determines lives. ask is the time when the next such read is
	// due.
	asking bool
	ask    time.Time
	// keep makes the Service check the lease until the lease has ended. It is set if the lease was
	// granted here, or a key was bound to the lease here. Without keep and without users, the
	// Service checks the lease only once, after the time to live.
	keep bool
	// holder is the program to which this Service granted the lease (WithHolder). It is nil if not
	// known.
	holder any
	bound  map[store.Key]struct{} // keys that are deleted with the lease
	users  map[*user]struct{}

	timer     func() bool // stops the timer for the next check; nil if no timer runs
	stopWatch context.CancelFunc
}

// user is a caller that waits for changes of a lease.
type user struct {
	lease *lease
	// whether to watch the lease and report each new version at once; otherwise new versions are
	// noticed at the next read
	watch bool
	// wake is called when the lease has ended or was renewed. The caller of wake holds Service.mu,
	// so wake must not block.
	wake func(gone bool)
}

// maxPassing is the maximum number of known leases at which the Service still begins to watch a
// lease only because it has read a key that is bound to it.
const maxPassing = 1 << 16

// get returns the entry of a lease in the table, and creates it if necessary. The caller holds
// s.mu.
func (s *Service) get(k leaseKey) *lease {
	l := s.leases[k]
	if l == nil {
		l = &lease{key: k, bound: map[store.Key]struct{}{}, users: map[*user]struct{}{}}
		s.leases[k] = l
		s.sweeps(k.namespace)
	}
	return l
}

// see records the state of a lease's key that was just read or written. The argument `here` says
// that this Service wrote it. see returns the time to live, and false if the lease has ended.
func (s *Service) see(k leaseKey, item store.Item, here bool) (time.Duration, bool) {
	c, ttl, ok := leaseTTL(item)
	if !ok {
		s.lost(k)
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil && !here && len(s.leases) >= maxPassing {
		return ttl, true
	}
	l = s.get(k)
	l.keep = l.keep || here
	if item.Version <= l.version {
		return ttl, true
	}
	if l.newest.After(l.lives) {
		l.lives = l.newest
	}
	l.newest = time.Time{}
	l.version, l.value, l.mark, l.ttl, l.since = item.Version, c.Encode(), c.Value, ttl, s.clock.Now()
	s.arm(l, ttl+margin(ttl))
	for u := range l.users {
		u.wake(false)
	}
	return ttl, true
}

// livesSince records that this Service wrote a version of the lease after begin.
func (s *Service) livesSince(k leaseKey, begin time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil || !begin.After(l.lives) {
		return
	}
	l.lives = begin
	for u := range l.users {
		u.wake(false)
	}
}

// asks returns the interval at which a lease is read to determine its field `lives`. If a new
// version appears between two reads, it was written after the first read.
func asks(ttl time.Duration) time.Duration { return max(ttl/8, firstPause) }

// asked reads a lease to determine the field `lives` of the lease.
func (s *Service) asked(ctx context.Context, l *lease) {
	begin := s.clock.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.clock.AfterFunc(longestPause, cancel)()
	item, err := s.store.Get(ctx, l.key.store(), false)
	if err == nil {
		s.see(l.key, item, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.asking, l.ask = false, s.clock.Now().Add(firstPause)
	if err == nil {
		l.ask = begin.Add(asks(l.ttl))
	}
	if err == nil && item.Found && item.Version == l.version {
		l.newest = begin
	}
	for u := range l.users {
		u.wake(false)
	}
}

// lastSeen returns the last known state of a lease's key, if there is one.
func (s *Service) lastSeen(k leaseKey) (store.Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil || l.version == 0 {
		return store.Item{}, false
	}
	return store.Item{Key: k.store(), Found: true, Value: l.value, Version: l.version}, true
}

// arm schedules the next check of a lease. The caller holds s.mu.
func (s *Service) arm(l *lease, after time.Duration) {
	l.disarm()
	if !s.closed {
		l.timer = s.clock.AfterFunc(after, func() { s.behind(func(ctx context.Context) { s.look(ctx, l) }) })
	}
}

func (l *lease) disarm() {
	if l.timer != nil {
		l.timer()
		l.timer = nil
	}
}

// lookNow makes the Service read a lease now, if the lease is in the table.
func (s *Service) lookNow(k leaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[k]; l != nil {
		s.arm(l, 0)
	}
}

// look reads a lease whose time may have run out. If it has, look ends the lease.
func (s *Service) look(ctx context.Context, l *lease) {
	item, err := s.store.Get(ctx, l.key.store(), false)
	s.mu.Lock()
	if s.leases[l.key] != l {
		s.mu.Unlock()
		return
	}
	if err != nil {
		s.arm(l, longestPause)
		s.mu.Unlock()
		return
	}
	rest := l.since.Add(l.ttl + margin(l.ttl)).Sub(s.clock.Now())
	same := l.version != 0 && item.Found && item.Version == l.version
	switch {
	case same && rest > 0:
		s.arm(l, rest)
		s.mu.Unlock()
		return
	// another Service has renewed the lease and checks it, so this Service need not
	case !same && item.Found && l.version != 0 && !l.keep && len(l.users) == 0:
		s.forget(l)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if same {
		// If the lease was renewed meanwhile, this deletion fails, and the next read finds the
		// newer version.
		if item, _, err = s.store.CompareAndDelete(ctx, l.key.store(), item.Version); err != nil {
			s.mu.Lock()
			if s.leases[l.key] == l {
				s.arm(l, firstPause)
			}
			s.mu.Unlock()
			return
		}
	}
	s.see(l.key, item, false)
}

// forget removes a lease from the table. The caller holds s.mu.
func (s *Service) forget(l *lease) {
	l.disarm()
	if l.stopWatch != nil {
		l.stopWatch()
	}
	delete(s.leases, l.key)
}

// lost records that a lease has ended, and deletes the keys that this Service knows to be bound to
// it.
func (s *Service) lost(k leaseKey) {
	s.mu.Lock()
	l := s.leases[k]
	if l == nil {
		s.mu.Unlock()
		return
	}
	s.forget(l)
	for u := range l.users {
		u.wake(true)
	}
	s.mu.Unlock()
	if len(l.bound) > 0 {
		s.behind(func(ctx context.Context) {
			for key := range l.bound {
				s.sweepKey(ctx, key, k.id)
			}
		})
	}
}

// bind records that a key is bound to a lease, so that the key is deleted with the lease. If the
// lease has already ended, the key is deleted soon.
func (s *Service) bind(k leaseKey, key store.Key) {
	s.mu.Lock()
	l := s.get(k)
	l.keep = true
	l.bound[key] = struct{}{}
	if l.timer == nil { // no check of the lease is scheduled, so nothing is known about the lease
		s.arm(l, 0)
	}
	s.mu.Unlock()
}

// note is like bind, for a key that another Service has bound. The key is deleted if the next check
// by this Service finds that the lease has ended.
func (s *Service) note(k leaseKey, key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[k] == nil && len(s.leases) >= maxPassing {
		return
	}
	l := s.get(k)
	l.bound[key] = struct{}{}
	if l.timer == nil {
		s.arm(l, 0)
	}
}

// unbind undoes bind or note.
func (s *Service) unbind(k leaseKey, key store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[k]; l != nil {
		delete(l.bound, key)
	}
}

// follow makes the Service watch a lease until unfollow is called. It calls wake when the lease has
// ended or was renewed. If `watch` is true, it calls wake as soon as that happens, and otherwise at
// the next read.
func (s *Service) follow(k leaseKey, watch bool, wake func(gone bool)) *user {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.get(k)
	u := &user{l, watch, wake}
	l.users[u] = struct{}{}
	switch {
	case watch && l.stopWatch == nil && !s.closed:
		var ctx context.Context
		ctx, l.stopWatch = context.WithCancel(s.ctx)
		s.work.Go(func() { s.watchLease(ctx, k) })
	case l.timer == nil:
		s.arm(l, 0)
	}
	return u
}

func (s *Service) unfollow(u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := u.lease
	delete(l.users, u)
	if s.leases[l.key] != l {
		return
	}
	for other := range l.users {
		if other.watch {
			return
		}
	}
	if l.stopWatch != nil {
		l.stopWatch()
		l.stopWatch = nil
	}
	if l.timer == nil && !l.keep && len(l.users) == 0 {
		// the entry is no longer needed, because no check is scheduled and nothing depends on it
		delete(s.leases, l.key)
	}
}

// watchLease records each version of a lease until ctx ends.
func (s *Service) watchLease(ctx context.Context, k leaseKey) {
	for pause := (pauses{s: s}); ; {
		key := k.store()
		_ = s.store.Watch(ctx, store.Watch{Namespace: key.Namespace, Keys: []string{key.Name}},
			func(changes []store.Change) {
				for _, c := range changes {
					if c.Found {
						s.see(k, c.Item, false)
					} else {
						s.lookNow(k) // read the lease again, because the watch may be older than the last read
					}
				}
				pause = pauses{s: s}
			})
		if !pause.wait(ctx) {
			return
		}
	}
}
