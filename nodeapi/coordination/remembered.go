package coordination

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// remembered caches the state of locks, so that a Service need not read a lock before it writes it.
// The cache may be out of date. This is safe, because each write names the version that it
// replaces, and fails if the key has another version. Service.mu guards the cache.
type remembered struct {
	// taken has the keys that this Service has acquired, unless they are known to have been
	// released.
	taken map[store.Key]holding
	// free has the keys that this Service has deleted, each with the version of the deletion.
	free map[store.Key]wire.Version
}

// holding describes how a key was acquired.
type holding struct {
	lease   leaseKey
	version wire.Version
}

// mostRemembered is the maximum number of keys in each of the two maps. The Service reads keys that
// are not in the maps.
const mostRemembered = 1 << 14

func room[V any](of map[store.Key]V) {
	for key := range of {
		if len(of) < mostRemembered {
			return
		}
		delete(of, key)
	}
}

// hasTaken records that a key was acquired.
func (s *Service) hasTaken(k leaseKey, item store.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room(s.remembered.taken)
	s.remembered.taken[item.Key] = holding{k, item.Version}
}

// hasFreed records that a key was deleted. The item has the version of the deletion.
func (s *Service) hasFreed(item store.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room(s.remembered.free)
	s.remembered.free[item.Key] = item.Version
}

// takenAs returns the lease for which a key was acquired with a version, if the cache has it. It
// removes the entry from the cache.
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

// wasFree returns the state of a key that this Service has deleted, if the cache has it. It removes
// the entry from the cache.
func (s *Service) wasFree(key store.Key) (store.Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.remembered.free[key]
	delete(s.remembered.free, key)
	return store.Item{Key: key, Version: v}, ok && v != 0
}
