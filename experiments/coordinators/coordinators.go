// Package coordinators has the same operations for the node API, etcd and Consul: a lock, a small
// key, and a watch. Each uses the client that programs of that system use. make bench-nodeapi
// compares them.
package coordinators

import (
	"context"
	"fmt"
	"time"
)

// TTL is the time to live of the leases and sessions that locks depend on. It is Consul's minimum.
const TTL = 10 * time.Second

// Client is a program's client for a coordinator, with its own connection and its own lease or
// session.
type Client interface {
	// Lock acquires a lock. unlock releases it.
	Lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	Put(ctx context.Context, key, value string) error
	// Watch calls tell with each reported value of an existing key, until ctx ends or the watch
	// fails. If the watch fails, it calls failed. Watch returns when later puts will be reported.
	Watch(ctx context.Context, key string, tell func(value string), failed func(error)) error
	// Name returns the client's name, with its version if known.
	Name() string
	Close() error
}

// Open connects to a coordinator. kind is "node" (the node API), "etcd" or "consul". For "node",
// address is a path or tcp://HOST:PORT. Otherwise it is a URL, or for "etcd" one or several URLs,
// separated by commas.
func Open(ctx context.Context, kind, address string) (Client, error) {
	switch kind {
	case "node":
		return openNode(ctx, address)
	case "etcd":
		return openEtcd(ctx, address)
	case "consul":
		return openConsul(ctx, address)
	}
	return nil, fmt.Errorf("there is no coordinator %q", kind)
}

// waiting is the delay before a lock is passed on, so that the other client is certainly waiting
// for it. etcd's mutex waits with a watch that starts at an earlier revision. etcd moves such
// watches to its live watches only every 100 ms. The job therefore measures a client that has
// waited longer than 100 ms.
const waiting = 150 * time.Millisecond

// Job makes one call, and returns its duration.
type Job func(ctx context.Context) (time.Duration, error)

// Jobs lists the names of the jobs.
var Jobs = []string{"lock", "pass", "put", "watch"}

// NewJob prepares a job for two clients, a and b. end stops everything that it has started.
//
//	lock      a acquires a free lock, and releases it
//	pass      from the holder's release until the waiting client has the lock; they take turns
//	put       a writes a small key
//	watch     from the beginning of a's write until b is notified of that value
func NewJob(ctx context.Context, name string, a, b Client) (job Job, end func(), err error) {
	none := func() {}
	switch name {
	case "lock":
		return func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			unlock, err := a.Lock(ctx, "bench/alone")
			if err == nil {
				err = unlock(ctx)
			}
			return time.Since(began), err
		}, none, nil
	case "pass":
		return pass(ctx, a, b)
	case "put":
		return func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			err := a.Put(ctx, "bench/put", "a small value")
			return time.Since(began), err
		}, none, nil
	case "watch":
		return watch(ctx, a, b)
	}
	return nil, nil, fmt.Errorf("there is no job %q", name)
}

func pass(ctx context.Context, a, b Client) (Job, func(), error) {
	const name = "bench/handed"
	unlock, err := a.Lock(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	type taken struct {
		unlock func(context.Context) error
		at     time.Time
		err    error
	}
	next, other := b, a
	return func(ctx context.Context) (time.Duration, error) {
			took := make(chan taken, 1)
			go func() {
				unlock, err := next.Lock(ctx, name)
				took <- taken{unlock, time.Now(), err}
			}()
			select {
			case t := <-took:
				return 0, fmt.Errorf("a lock that is held was given to another: %w", t.err)
			case <-time.After(waiting):
			}
			began := time.Now()
			if err := unlock(ctx); err != nil {
				return 0, err
			}
			t := <-took
			if t.err != nil {
				return 0, t.err
			}
			unlock, next, other = t.unlock, other, next
			return t.at.Sub(began), nil
		}, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), TTL)
			defer cancel()
			_ = unlock(ctx) // this may fail, but a server that has ended holds no lock
		}, nil
}

func watch(ctx context.Context, a, b Client) (Job, func(), error) {
	const key = "bench/watched"
	if err := a.Put(ctx, key, "0"); err != nil {
		return nil, nil, err
	}
	type told struct {
		value string
		at    time.Time
	}
	values, failed := make(chan told, 16), make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	err := b.Watch(ctx, key, func(value string) {
		select {
		case values <- told{value, time.Now()}:
		case <-ctx.Done():
		}
	}, func(err error) { failed <- err })
	if err != nil {
		stop()
		return nil, nil, err
	}
	n := 0
	return func(ctx context.Context) (time.Duration, error) {
		n++
		value, began := fmt.Sprint(n), time.Now()
		if err := a.Put(ctx, key, value); err != nil {
			return 0, err
		}
		for {
			select {
			case t := <-values:
				if t.value == value {
					return t.at.Sub(began), nil
				}
			case err := <-failed:
				return 0, fmt.Errorf("the watch has ended: %w", err)
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}, stop, nil
}
