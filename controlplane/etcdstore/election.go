package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// These are the times of an election.
const (
	// ttlSeconds is how long a silent leader stays leader, unless a candidate notices that the
	// leader's process has ended (watchLeader). The shortest lease that etcd gives is one and a
	// half times its own election timeout, which is 2 s by default.
	ttlSeconds = 3
	// Leading is how long a leader may act after etcd last confirmed that it leads. It limits the
	// leases on reads.
	Leading = time.Second
	// asking is the time limit of one request to etcd.
	asking = Leading
)

// Candidate is a controller that takes part in the election.
type Candidate struct {
	Client *clientv3.Client
	Prefix string // prefix of all keys, which ends with a slash
	// Identity identifies the candidate in messages and to other candidates.
	Identity Identity
	Log      *slog.Logger
}

// Identity is the data that a candidate publishes about itself.
type Identity struct {
	Name string `json:"name"`
	// Admin is the address of the admin API for other controllers. It is "" if they cannot reach
	// the API.
	Admin string `json:"admin,omitempty"`
}

// Term is the time for which a candidate leads. During this time, it is also the controller's
// Store.
type Term struct {
	c        *Candidate
	session  *concurrency.Session
	election *concurrency.Election
	key      string       // this candidate's key in the election
	rev      int64        // the key's CreateRevision
	led      atomic.Int64 // holds a clock.Time
	ctx      context.Context
	cancel   context.CancelCauseFunc
	cache    cache
}

// errOver says that the term is over. In an error's text, the reason follows this message.
var errOver = errors.New("this controller no longer leads")

// Campaign waits until this candidate leads. Meanwhile it calls observe with each new leader.
func (c *Candidate) Campaign(ctx context.Context, observe func(Identity)) (*Term, error) {
	// Grant the lease here, within ctx. NewSession would wait for etcd's answer without a limit.
	lease, err := c.Client.Grant(ctx, ttlSeconds)
	if err != nil {
		return nil, fmt.Errorf("etcd gives no lease for the election of a leader: %w", err)
	}
	session, err := concurrency.NewSession(c.Client, concurrency.WithTTL(ttlSeconds),
		concurrency.WithLease(lease.ID), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, fmt.Errorf("the lease for the election of a leader: %w", err)
	}
	value, err := json.Marshal(c.Identity)
	if err != nil {
		return nil, err
	}
	e := concurrency.NewElection(session, c.Prefix+"leader")
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go c.watchLeader(waiting, e, observe)
	go func() { // Campaign does not end with its session, so this goroutine ends it
		select {
		case <-session.Done():
			stop()
		case <-waiting.Done():
		}
	}()
	if err := e.Campaign(waiting, string(value)); err != nil {
		session.Close()
		return nil, fmt.Errorf("standing for leader: %w", err)
	}
	t := &Term{c: c, session: session, election: e, key: e.Key(), rev: e.Rev()}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := t.ask(); err != nil {
		t.Resign()
		return nil, err
	}
	go t.keepAsking()
	return t, nil
}

// ElectionID returns the election id for the switches. It is higher than the id of every earlier
// leader.
func (t *Term) ElectionID() p4rt.ElectionID { return p4rt.ElectionID{High: uint64(t.rev)} }

// Leads returns the condition that this controller still leads. Other components use it in their
// transactions.
func (t *Term) Leads() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.rev)
}

// Led returns the time at which this controller sent the last request by which etcd confirmed that
// it leads.
func (t *Term) Led() clock.Time { return clock.Time(t.led.Load()) }

// Over returns a channel that is closed when the term is over. Err returns the reason.
func (t *Term) Over() <-chan struct{} { return t.ctx.Done() }

// Err returns the reason why the term is over.
func (t *Term) Err() error { return context.Cause(t.ctx) }

// Resign ends the term, so that the next candidate leads at once.
func (t *Term) Resign() {
	t.cancel(fmt.Errorf("%w: it has resigned", errOver))
	t.session.Close() // revokes the lease, if etcd answers; otherwise the lease runs out
}

// ask asks etcd whether this controller leads.
func (t *Term) ask() error {
	ctx, cancel := context.WithTimeout(t.ctx, asking)
	defer cancel()
	now := clock.Now()
	r, err := t.c.Client.Get(ctx, t.key)
	switch {
	case err != nil:
		return fmt.Errorf("asking etcd who leads: %w", err)
	case len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != t.rev:
		return fmt.Errorf("%w: its key in etcd is gone (etcd had not heard of it for %d s, or another candidate found its process dead)", errOver, ttlSeconds)
	}
	t.led.Store(int64(now))
	return nil
}

func (t *Term) keepAsking() {
	tick := time.NewTicker(Leading / 5)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.session.Done():
			t.cancel(fmt.Errorf("%w: its lease in etcd has run out", errOver))
			return
		case <-tick.C:
			if err := t.ask(); errors.Is(err, errOver) {
				t.cancel(err)
				return
			}
		}
	}
}

// notLeading returns the error of a write after the end of leadership. This error makes the
// controller release the switches.
func (t *Term) notLeading() error {
	t.cancel(fmt.Errorf("%w: etcd takes no more state from it", errOver))
	return fmt.Errorf("%w: %w", saved.ErrNotLeading, t.Err())
}

// watchLeader reports the leader, and ends the lease of a leader whose process has ended, so that
// no candidate waits for the lease to run out.
func (c *Candidate) watchLeader(ctx context.Context, e *concurrency.Election, observe func(Identity)) {
	for ctx.Err() == nil {
		r, err := e.Leader(ctx)
		if err != nil || len(r.Kvs) == 0 {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		kv := r.Kvs[0]
		var leader Identity
		if json.Unmarshal(kv.Value, &leader) != nil || leader.Name == c.Identity.Name {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		observe(leader)
		gone, stop := context.WithCancel(ctx)
		// this goroutine waits until the leader's key is deleted, because the lease runs out or the
		// leader resigns
		go func() {
			defer stop()
			w := c.Client.Watch(gone, string(kv.Key), clientv3.WithRev(r.Header.Revision+1))
			for x := range w {
				for _, ev := range x.Events {
					if ev.Type == clientv3.EventTypeDelete {
						return
					}
				}
				if x.Err() != nil {
					return
				}
			}
		}()
		if hasEnded(gone, leader) {
			c.Log.Info("the leader's process has ended", "leader", leader.Name)
			// If the leader is still alive, it notices that it no longer leads. So safety does not
			// depend on hasEnded.
			if _, err := c.Client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil &&
				!strings.Contains(err.Error(), "lease not found") {
				c.Log.Debug("revoking the leader's lease", "error", err)
			}
		}
		<-gone.Done()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
