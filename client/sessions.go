package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// SessionSource gives a client the sessions that it writes with.
type SessionSource interface {
	// Acquire gives sessions that nobody else writes under until lost is closed (nil: for good). It is called again after that.
	Acquire(ctx context.Context) (sessions []Session, lost <-chan struct{}, err error)
	// Release gives back what the last Acquire gave. The client sends nothing under those sessions any more.
	Release()
}

// StaticSessions are sessions that somebody has set aside for this client. Where they were used before, NextRequest has to be above every number they were used
// with: what is not above, the switches drop as old, without a word.
func StaticSessions(sessions ...Session) SessionSource { return staticSessions(sessions) }

type staticSessions []Session

func (s staticSessions) Acquire(context.Context) ([]Session, <-chan struct{}, error) {
	return s, nil, nil
}

func (s staticSessions) Release() {}

// SessionLease is a lease on sessions.
type SessionLease struct {
	Name     string
	Sessions []Session
	TTL      time.Duration // it runs out this long after it was asked for or last kept
}

// SessionLeaser leases sessions: the controller's admin API is one.
type SessionLeaser interface {
	NewSessions(ctx context.Context, count int, owner string) (SessionLease, error)
	// KeepSessions renews a lease for its TTL. It returns an error that wraps ErrLeaseGone when the lease has run out already.
	KeepSessions(ctx context.Context, lease string) error
	CloseSessions(ctx context.Context, lease string) error
}

// ErrLeaseGone: the lease on the sessions has run out, and others may have them.
var ErrLeaseGone = errors.New("session lease has run out")

// LeasedSessions leases count sessions and keeps the lease alive. When it cannot, the sessions are lost before the lease runs out.
func LeasedSessions(l SessionLeaser, count int, owner string) SessionSource {
	return &leasedSessions{leaser: l, count: count, owner: owner}
}

type leasedSessions struct {
	leaser SessionLeaser
	count  int
	owner  string
	stop   context.CancelFunc
	keeper sync.WaitGroup
	name   string
}

func (s *leasedSessions) Acquire(ctx context.Context) ([]Session, <-chan struct{}, error) {
	asked := time.Now() // the lease runs from a moment after this one, so what is counted from here ends before it does
	lease, err := s.leaser.NewSessions(ctx, s.count, s.owner)
	if err != nil {
		return nil, nil, fmt.Errorf("leasing %d sessions: %w", s.count, err)
	}
	if lease.TTL <= 0 || len(lease.Sessions) == 0 {
		return nil, nil, fmt.Errorf("leasing %d sessions: got %d for %v", s.count, len(lease.Sessions), lease.TTL)
	}
	keeping, stop := context.WithCancel(context.Background())
	s.stop, s.name = stop, lease.Name
	lost := make(chan struct{})
	s.keeper.Go(func() {
		s.keep(keeping, lease.TTL, asked)
		close(lost)
	})
	return lease.Sessions, lost, nil
}

// keep renews the lease until it is lost or ctx ends.
func (s *leasedSessions) keep(ctx context.Context, ttl time.Duration, renewed time.Time) {
	wait := ttl / 3
	for {
		ends := renewed.Add(ttl - ttl/10) // a tenth for what is on its way when the sessions are dropped
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(wait, time.Until(ends))):
		}
		if !time.Now().Before(ends) {
			return
		}
		asked := time.Now()
		try, cancel := context.WithDeadline(ctx, ends)
		err := s.leaser.KeepSessions(try, s.name)
		cancel()
		switch {
		case err == nil:
			renewed, wait = asked, ttl/3
		case errors.Is(err, ErrLeaseGone):
			return
		default:
			wait = ttl / 20
		}
	}
}

func (s *leasedSessions) Release() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.keeper.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.leaser.CloseSessions(ctx, s.name) // it runs out by itself
	s.stop = nil
}

// acquire gets sessions and gives them to the machine.
func (c *Client) acquire(ctx context.Context) (lost <-chan struct{}, err error) {
	sessions, lost, err := c.cfg.Sessions.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("netcraq client: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sessions == nil {
		sessions = []Session{}
	}
	c.sessions = sessions
	for _, s := range sessions {
		if err := c.machine.AddSession(c.now(), s); err != nil {
			return nil, err
		}
	}
	c.pump()
	return lost, nil
}

// keepSessions replaces sessions that are lost.
func (c *Client) keepSessions(ctx context.Context, lost <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-lost:
		}
		c.mu.Lock()
		for _, s := range c.sessions {
			c.machine.DropSession(c.now(), s.ID)
		}
		c.pump()
		c.mu.Unlock()
		c.cfg.Sessions.Release()
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			var err error
			if lost, err = c.acquire(ctx); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}
