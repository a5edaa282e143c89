package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// SessionSource gives a client the sessions that it writes with.
type SessionSource interface {
	// Acquire returns sessions to write with. host is the address from which the client sends, or
	// invalid if it is unknown. Until the channel `lost` is closed, no other client writes under
	// these sessions. If `lost` is nil, they stay reserved forever. The client calls Acquire again
	// after `lost` was closed. If `lost` is not nil, the client also calls Acquire again when the
	// switches reject all of the sessions.
	Acquire(ctx context.Context, host netip.Addr) (sessions []Session, lost <-chan struct{}, err error)
	// Release releases the sessions that the last Acquire returned. The client sends nothing more
	// under them.
	Release()
}

// StaticSessions returns a source of sessions that are reserved for this client. If the sessions
// were used before, NextRequest must be greater than every number that was used. Otherwise the
// switches silently drop the requests as old.
func StaticSessions(sessions ...Session) SessionSource { return staticSessions(sessions) }

type staticSessions []Session

func (s staticSessions) Acquire(context.Context, netip.Addr) ([]Session, <-chan struct{}, error) {
	return s, nil, nil
}

func (s staticSessions) Release() {}

// SessionLease is the controller's grant of sessions for a limited time.
type SessionLease struct {
	Name     string
	Sessions []Session
	TTL      time.Duration // the lease expires this long after it was requested or last renewed
}

// SessionLeaser leases sessions. The client of the controller's admin API implements it.
type SessionLeaser interface {
	// NewSessions leases sessions to a host, given by its IPv4 address in the network or invalid if
	// it is unknown. owner is a name that operators see.
	NewSessions(ctx context.Context, count int, owner string, host netip.Addr) (SessionLease, error)
	// KeepSessions renews a lease for its TTL. It returns an error that wraps ErrLeaseGone if the
	// lease has expired.
	KeepSessions(ctx context.Context, lease string) error
	CloseSessions(ctx context.Context, lease string) error
}

// ErrLeaseGone means that the lease on the sessions has expired, and other clients may have leased
// the sessions.
var ErrLeaseGone = errors.New("session lease has run out")

// LeasedSessions leases count sessions and keeps their lease alive. If it cannot renew the lease,
// it closes the channel `lost` before the lease expires.
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

func (s *leasedSessions) Acquire(ctx context.Context, host netip.Addr) ([]Session, <-chan struct{}, error) {
	// The lease starts later than this time, so counting its end from here is safe.
	asked := time.Now()
	lease, err := s.leaser.NewSessions(ctx, s.count, s.owner, host)
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
		// The last tenth of the lease is left for packets that are under way when the sessions are
		// dropped.
		ends := renewed.Add(ttl - ttl/10)
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
	_ = s.leaser.CloseSessions(ctx, s.name) // if this fails, the lease expires by itself
	s.stop = nil
}

// acquire gets sessions and adds them to the machine.
func (c *Client) acquire(ctx context.Context) (lost <-chan struct{}, err error) {
	sessions, lost, err := c.cfg.Sessions.Acquire(ctx, c.host())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewable = err == nil && lost != nil
	// if no sessions will come, this makes waiting calls fail
	c.machine.AwaitSessions(c.now(), c.renewable)
	defer c.pump()
	if err != nil {
		return nil, fmt.Errorf("netcraq client: %w", err)
	}
	if sessions == nil {
		sessions = []Session{}
	}
	c.sessions = sessions
	for _, s := range sessions {
		if err := c.machine.AddSession(c.now(), s); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// host returns the address from which the client sends, or an invalid address if it is not known.
func (c *Client) host() netip.Addr {
	if a := c.socket.local().Addr(); !a.IsUnspecified() {
		return a
	}
	return HostAddress(slices.Concat(c.cfg.Services, c.cfg.Addresses)[0])
}

// HostAddress returns the address from which this host sends to the address `to`. It is invalid if
// there is no route to that address.
func HostAddress(to netip.AddrPort) netip.Addr {
	// this connects the socket, but sends nothing
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return unmap(conn.LocalAddr().(*net.UDPAddr).AddrPort()).Addr()
}

// These limits apply when the switches reject all sessions of a lease. The client requests the next
// lease at once. The pause before further leases grows with each consecutive lease that lasts less
// than `soon`.
const (
	soon         = 5 * time.Second
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// keepSessions replaces sessions that are lost or that the switches reject.
func (c *Client) keepSessions(ctx context.Context, lost <-chan struct{}) {
	acquired := time.Now()
	var pause time.Duration // wait before the next lease is requested
	for {
		select {
		case <-ctx.Done():
			return
		case <-lost:
			pause = 0
		case <-c.none:
			c.mu.Lock()
			some := c.machine.Sessions() > 0
			c.mu.Unlock()
			if some { // other sessions were added meanwhile
				continue
			}
			if time.Since(acquired) > soon {
				pause = 0
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(max(2*pause, firstPause), longestPause)
		}
		c.mu.Lock()
		for _, s := range c.sessions {
			c.machine.DropSession(c.now(), s.ID)
		}
		c.pump()
		c.mu.Unlock()
		c.cfg.Sessions.Release()
		for again := firstPause; ; again = min(2*again, longestPause) {
			var err error
			if lost, err = c.acquire(ctx); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
		}
		acquired = time.Now()
	}
}
