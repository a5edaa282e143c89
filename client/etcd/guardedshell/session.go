package guardedshell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// SessionTTL is how long a session lives after its gateway has died.
const SessionTTL = 10 * time.Second

// firstTry is the timeout of the first request to etcd for a session. Each further timeout is a
// quarter longer, up to the session's time to live. So an etcd member that does not answer costs
// little time, even if it is asked several times, and a slow etcd still gets enough time.
const firstTry = time.Second

// sessionPause is the pause between a failure and the next try.
const sessionPause = 100 * time.Millisecond

// Leases implements guarded.Sessions. A session is a lease in etcd, with a key that exists while
// the lease lives. When a session ends, Leases begins the next one.
type Leases struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
	log    *zap.Logger
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	lease   int64         // lease of the current session; 0 if there is none
	ended   chan struct{} // closed when the current session is given up
	changed chan struct{} // closed at the next change of the field lease
	err     error         // why there is no session at present
}

// NewLeases starts to keep a session, until Close. prefix is the prefix of all of the gateways'
// keys. A ttl of 0 means SessionTTL, and a nil log means that nothing is logged.
func NewLeases(client *clientv3.Client, prefix string, ttl time.Duration, log *zap.Logger) *Leases {
	if ttl == 0 {
		ttl = SessionTTL
	}
	if log == nil {
		log = zap.NewNop()
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Leases{client: client, prefix: prefix, ttl: ttl, log: log, stop: stop, changed: make(chan struct{})}
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Close ends the session. It also ends the lease in etcd, if etcd answers within a second.
func (l *Leases) Close() {
	l.stop()
	l.done.Wait()
}

// Key implements guarded.Sessions.
func (l *Leases) Key(lease int64) string {
	return l.prefix + "sessions/" + strconv.FormatInt(lease, 16)
}

// Current implements guarded.Sessions.
func (l *Leases) Current(ctx context.Context) (int64, error) {
	for {
		l.mu.Lock()
		lease, changed, err := l.lease, l.changed, l.err
		l.mu.Unlock()
		if lease != 0 {
			return lease, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), err)
		}
	}
}

// GiveUp implements guarded.Sessions.
func (l *Leases) GiveUp(lease int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == lease && lease != 0 {
		close(l.ended)
		l.set(0)
	}
}

// set changes the current session. The caller has locked mu.
func (l *Leases) set(lease int64) {
	l.lease, l.ended = lease, make(chan struct{})
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Leases) run(ctx context.Context) {
	try := min(firstTry, l.ttl)
	for ctx.Err() == nil {
		lease, alive, err := l.open(ctx, try)
		l.mu.Lock()
		l.err = err
		if err != nil {
			l.mu.Unlock()
			try = min(try+try/4, l.ttl)
			l.log.Warn("no session in etcd", zap.Error(err))
			select {
			case <-ctx.Done():
			case <-time.After(sessionPause):
			}
			continue
		}
		try = min(firstTry, l.ttl)
		l.set(int64(lease))
		ended := l.ended
		l.mu.Unlock()
		select {
		case <-ended:
			l.log.Info("the session is given up: it is not known whether etcd executed a write", zap.Int64("lease", int64(lease)))
		case <-ctx.Done():
		case <-drained(alive):
			l.log.Warn("the session has run out", zap.Int64("lease", int64(lease)))
		}
		l.GiveUp(int64(lease))
		l.done.Go(func() { l.end(ctx, lease) })
	}
}

// open makes a lease with a session key, within the given time, and keeps it alive until alive is
// closed. If etcd creates the lease but its answer is lost, the lease expires by itself.
func (l *Leases) open(ctx context.Context, within time.Duration) (
	clientv3.LeaseID, <-chan *clientv3.LeaseKeepAliveResponse, error) {
	try, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	g, err := l.client.Grant(try, int64((l.ttl+time.Second-1)/time.Second))
	if err != nil {
		return 0, nil, fmt.Errorf("asking etcd for a lease: %w", err)
	}
	if _, err := l.client.Put(try, l.Key(int64(g.ID)), "", clientv3.WithLease(g.ID)); err != nil {
		return 0, nil, fmt.Errorf("writing the session's key to etcd: %w", err)
	}
	alive, err := l.client.KeepAlive(ctx, g.ID)
	if err != nil {
		return 0, nil, fmt.Errorf("keeping the session alive: %w", err)
	}
	return g.ID, alive, nil
}

// drained returns a channel that is closed when no more answers come on alive.
func drained(alive <-chan *clientv3.LeaseKeepAliveResponse) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for range alive {
		}
		close(over)
	}()
	return over
}

// end ends a lease in etcd, which also deletes its key. Guards of the session stay until the lease
// has ended.
func (l *Leases) end(ctx context.Context, lease clientv3.LeaseID) {
	for over := time.Now().Add(2 * l.ttl); time.Now().Before(over); {
		closing := ctx.Err() != nil
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, err := l.client.Revoke(try, lease)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || closing {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(sessionPause):
		}
	}
}
