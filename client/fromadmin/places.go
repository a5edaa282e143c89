package fromadmin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
)

const (
	// mostPlaces bounds the number of cached places.
	mostPlaces = 1 << 17
	// absentFor is how long eventual reads use the cached answer that a key does not exist.
	absentFor = time.Second
	// lookupTime bounds the duration of one request to the controller. mostLookups bounds the
	// number of concurrent requests; the controller accepts 128 from all clients together.
	lookupTime  = 2 * time.Second
	mostLookups = 8
)

// place is where a key is: its KEY_ID and its chain. It is immutable.
type place struct {
	id     wire.Key
	chain  string
	offset uint64
	// version of the name until the key is first written; 0 if the key was created with a value
	unwritten wire.Version
}

// state turns a switch's answer for the KEY_ID into the state of the name.
func (p *place) state(found bool, value []byte, v wire.Version) Named {
	v += wire.Version(p.offset)
	if !found && v == p.unwritten {
		return Named{}
	}
	if !found {
		value = nil
	}
	return Named{Found: found, Value: value, Version: v}
}

func settledOf(k *admin.Key) time.Duration { return time.Duration(k.SettledMillis) * time.Millisecond }

// places caches the answers of the controller about keys.
type places struct {
	admin *admin.Client
	slots chan struct{} // limits the concurrent requests

	mu     sync.Mutex
	byName map[string]*place
	// names without a key; the time says until when that answer is cached
	absent  map[string]time.Time
	flights map[string]*flight
}

func newPlaces(admin *admin.Client) *places {
	return &places{admin: admin, slots: make(chan struct{}, mostLookups), byName: map[string]*place{},
		absent: map[string]time.Time{}, flights: map[string]*flight{}}
}

// known returns the cached place of a key, or nil if no place is cached.
func (s *places) known(name string) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// lately reports whether the controller has answered within the last absentFor that the key does
// not exist.
func (s *places) lately(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.absent[name])
}

// forget drops a name's cached place. If p is not nil, it does so only if the cached place is p.
func (s *places) forget(name string, p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil || s.byName[name] == p {
		delete(s.byName, name)
	}
	if p == nil {
		delete(s.absent, name)
	}
}

func (s *places) learn(k *admin.Key) *place {
	p := &place{wire.Key(k.KeyID), k.Chain, k.VersionOffset, wire.Version(k.Unwritten)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byName[k.Name]; old != nil && *old == *p {
		return old
	}
	for name := range s.byName {
		if len(s.byName) < mostPlaces {
			break
		}
		delete(s.byName, name)
	}
	s.byName[k.Name] = p
	delete(s.absent, k.Name)
	return p
}

// flight is a request to the controller. All callers that came before the request began share it.
type flight struct {
	done chan struct{}
	key  *admin.Key // nil if the key does not exist
	err  error
	// settled is valid whether the key exists or not.
	settled time.Duration
	// the request for callers that came after this request began; nil if there is none
	next *flight
}

// ask asks the controller for the place of a key, which is nil if the key does not exist. It also
// returns for how long the name has had no other KEY_ID. The request to the controller begins after
// the call of ask, because the answer to an earlier request may be an older state.
func (s *places) ask(ctx context.Context, name string) (*admin.Key, time.Duration, error) {
	s.mu.Lock()
	f := s.flights[name]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		s.flights[name] = f
		go s.fly(name, f)
	} else {
		if f.next == nil {
			f.next = &flight{done: make(chan struct{})}
		}
		f = f.next
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.key, f.settled, f.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// turn waits until another request may be sent to the controller. The caller calls done afterwards.
func (s *places) turn(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *places) done() { <-s.slots }

func (s *places) fly(name string, f *flight) {
	for f != nil {
		s.slots <- struct{}{}
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		f.key, f.err = s.admin.Lookup(ctx, name)
		cancel()
		s.done()
		var said *admin.Error
		if f.err == nil {
			f.settled = settledOf(f.key)
		} else if errors.As(f.err, &said) && said.Code == admin.CodeNotFound {
			f.key, f.err, f.settled = nil, nil, time.Duration(said.SettledMillis)*time.Millisecond
		}
		s.mu.Lock()
		if f.err == nil && f.key == nil {
			for name := range s.absent {
				if len(s.absent) < mostPlaces {
					break
				}
				delete(s.absent, name)
			}
			s.absent[name] = time.Now().Add(absentFor)
		}
		close(f.done)
		if f = f.next; f == nil {
			delete(s.flights, name)
		} else {
			s.flights[name] = f
		}
		s.mu.Unlock()
	}
}
