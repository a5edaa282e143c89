package coordination

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// remembered caches the state of locks, so that a Service need not read a lock before it writes it.
// The cache may be out of date: each write names the version that it replaces, and fails if the key
// has another one. Service.mu guards it.
type remembered struct {
	// keys that this Service has taken and that are not known to have been released
	taken map[store.Key]holding
	// keys that this Service has deleted, each with the version of the deletion
	free map[store.Key]wire.Version
}

// holding describes how a key was taken.
type holding struct {
	lease   leaseKey
	version wire.Version
}

// mostRemembered bounds each of the two maps. The Service reads keys that it does not remember.
const mostRemembered = 1 << 14

func room[V any](of map[store.Key]V) {
	for key := range of {
		if len(of) < mostRemembered {
			return
		}
		delete(of, key)
	}
}

// hasTaken remembers that a key was taken.
func (s *Service) hasTaken(k leaseKey, item store.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room(s.remembered.taken)
	s.remembered.taken[item.Key] = holding{k, item.Version}
}

// hasFreed remembers that a key was deleted; item has the version of the deletion.
func (s *Service) hasFreed(item store.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room(s.remembered.free)
	s.remembered.free[item.Key] = item.Version
}

// takenAs returns, and forgets, the lease for which a key was taken with a version, if that is
// remembered.
func (s *Service) takenAs(key store.Key, version wire.Version) (leaseKey, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.remembered.taken[key]
	if !ok || h.version != version {
		return leaseKey{}, false
	}
	delete(s.remembered.taken, key)
	return h.lease, true
}

// wasFree returns, and forgets, the state in which this Service left a key by deleting it, if that
// is remembered.
func (s *Service) wasFree(key store.Key) (store.Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.remembered.free[key]
	delete(s.remembered.free, key)
	return store.Item{Key: key, Version: v}, ok && v != 0
}
