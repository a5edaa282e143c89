package fromadmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/client"
)

// This file holds the clients that Names uses. For each chain, Names has a client with its own
// sessions. It makes the client when it first uses a key of the chain, and makes a new one when the
// chain's addresses have changed.

const (
	// openTime bounds the time to ask for the chain's address and to lease sessions.
	openTime = 5 * time.Second
	// doubtPause applies to a chain that does not answer. It is the minimum time between two
	// requests to the controller for that chain's address.
	doubtPause = 5 * time.Second
)

// link is a client of a chain.
type link struct {
	name  string
	ready chan struct{} // closed when the following fields are set
	err   error
	c     *client.Client
	cfg   client.Config

	// chains.mu guards the following fields.
	users   int
	dropped bool
	looked  time.Time // when the controller was last asked whether the chain still exists
}

type chains struct {
	o      NamesOptions
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	byName map[string]*link
	closed bool
	err    error
}

func newChains(o NamesOptions) *chains {
	s := &chains{o: o, byName: map[string]*link{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// get returns a chain's client, which stays open until release is called.
func (s *chains) get(ctx context.Context, name string) (c *client.Client, release func(), err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, client.ErrClosed
	}
	l := s.byName[name]
	if l == nil {
		l = &link{name: name, ready: make(chan struct{}), looked: time.Now()}
		s.byName[name] = l
		s.work.Go(func() { s.open(l) })
	}
	l.users++
	s.mu.Unlock()
	release = func() { s.release(l) }
	select {
	case <-l.ready:
	default:
		select {
		case <-l.ready:
		case <-ctx.Done():
			release()
			return nil, nil, ctx.Err()
		}
	}
	if l.err != nil {
		release()
		return nil, nil, l.err
	}
	return l.c, release, nil
}

func (s *chains) release(l *link) {
	s.mu.Lock()
	l.users--
	end := l.dropped && l.users == 0 && l.c != nil
	s.mu.Unlock()
	if end {
		s.shut(l)
	}
}

func (s *chains) shut(l *link) {
	if err := l.c.Close(); err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
	}
}

// config asks the controller for a chain, and returns the configuration of the chain's client.
func (s *chains) config(ctx context.Context, name string) (cfg client.Config, err error) {
	chain, err := s.o.Admin.Chain(ctx, name)
	if err != nil {
		return cfg, err
	}
	var problems [3]error
	cfg.Addresses, problems[0] = Addresses(chain)
	cfg.Services, problems[1] = Services(chain)
	cfg.Profile, problems[2] = Profile(chain)
	if s.o.Adjust != nil {
		s.o.Adjust(&cfg)
	}
	return cfg, errors.Join(problems[:]...)
}

func (s *chains) open(l *link) {
	ctx, cancel := context.WithTimeout(s.ctx, openTime)
	defer cancel()
	l.cfg, l.err = s.config(ctx, l.name)
	if l.err == nil {
		cfg := l.cfg
		cfg.Sessions = Sessions(s.o.Admin, s.o.Sessions, s.o.Owner)
		l.c, l.err = client.New(ctx, cfg)
	}
	s.mu.Lock()
	if l.err != nil {
		l.err = fmt.Errorf("reaching chain %s: %w", l.name, l.err)
		s.drop(l)
	}
	idle := l.dropped && l.users == 0 && l.c != nil
	s.mu.Unlock()
	close(l.ready)
	if idle {
		s.shut(l)
	}
}

// drop makes the next call for the chain make a new client. The caller holds s.mu.
func (s *chains) drop(l *link) {
	l.dropped = true
	if s.byName[l.name] == l {
		delete(s.byName, l.name)
	}
}

// forget drops a chain's client, so that the next call makes a new one.
func (s *chains) forget(name string) {
	s.mu.Lock()
	l := s.byName[name]
	if l == nil || !l.isOpen() {
		s.mu.Unlock()
		return
	}
	s.drop(l)
	end := l.users == 0
	s.mu.Unlock()
	if end {
		s.shut(l)
	}
}

func (l *link) isOpen() bool {
	select {
	case <-l.ready:
		return l.err == nil
	default:
		return false
	}
}

// doubt handles a chain that does not answer. Once per doubtPause it checks whether the chain's
// addresses have changed.
func (s *chains) doubt(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byName[name]
	if l == nil || s.closed || time.Since(l.looked) < doubtPause {
		return
	}
	l.looked = time.Now()
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, openTime)
		defer cancel()
		now, err := s.config(ctx, name)
		if err == nil && l.isOpen() && (!slices.Equal(now.Addresses, l.cfg.Addresses) ||
			!slices.Equal(now.Services, l.cfg.Services) || now.Profile != l.cfg.Profile) {
			s.forget(name)
		}
	})
}

func (s *chains) close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	all := s.byName
	s.byName = map[string]*link{}
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	for _, l := range all {
		if l.c != nil {
			s.shut(l)
		}
	}
	return s.err
}
