package durable

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/coordination"
)

// TestCoordination checks coordination in a durable namespace. The lock of a dead node must become
// available with a greater token, and an old token must be refused. The instances of a dead node
// must disappear. All of this must survive a restart of etcd.
func TestCoordination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Cut the connection to etcd to simulate a killed node, which neither sends nor receives
	// anything.
	relay := newRelay(t, w.gateway())
	dead := coordination.New(open(t, Options{Patience: time.Second}, relay.url), coordination.Options{Node: "a"})
	alive := coordination.New(open(t, Options{Patience: time.Second}, w.gateway()), coordination.Options{Node: "b"})
	ended, end := context.WithCancel(context.Background())
	end()
	t.Cleanup(func() { alive.Close(ended) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const ttl = 1500
	o, mine := dead.NewOwner(), alive.NewOwner()
	t.Cleanup(mine.Close)
	first, err := dead.Lock(ctx, ns, o, nodeapi.LockData{Name: "l", TTLMillis: ttl})
	must(err)
	led, err := dead.Campaign(ctx, ns, o, nodeapi.LockData{Name: "e", Value: "a", TTLMillis: ttl})
	must(err)
	permit, err := dead.Acquire(ctx, ns, o, nodeapi.LockData{Name: "s", Permits: 1, TTLMillis: ttl})
	must(err)
	_, err = dead.RegisterService(ctx, ns, o, nodeapi.ServiceData{Service: "web", Instance: "1", Address: "10.0.0.1:80", TTLMillis: ttl})
	must(err)
	if !first.Held || !led.Held || !permit.Held {
		t.Fatalf("%+v, %+v, %+v", first, led, permit)
	}
	no := 0
	if a, err := alive.Lock(ctx, ns, mine, nodeapi.LockData{Name: "l", WaitMillis: &no}); err != nil || a.Held {
		t.Errorf("two hold it: %+v, %v", a, err)
	}
	if l, err := alive.Leader(ctx, ns, nodeapi.LeaderData{Name: "e"}); err != nil || l.Value != "a" {
		t.Errorf("who leads: %+v, %v", l, err)
	}
	if s, err := alive.GetService(ctx, ns, nodeapi.GetServiceData{Service: "web"}); err != nil || len(s.Instances) != 1 {
		t.Errorf("instances: %+v, %v", s, err)
	}

	relay.cut()
	dead.Close(ended)
	w.Kill(0)
	w.Start(0)
	again := func(what string, call func() (nodeapi.LockAnswer, error)) (a nodeapi.LockAnswer) {
		t.Helper()
		// retry, because etcd may still be unavailable for a moment
		poll.Nil(t, soon, what, func() (err error) { a, err = call(); return err })
		return a
	}
	second := again("the lock is another's", func() (nodeapi.LockAnswer, error) {
		return alive.Lock(ctx, ns, mine, nodeapi.LockData{Name: "l", TTLMillis: ttl})
	})
	before, _ := strconv.ParseUint(first.Token, 10, 64)
	after, _ := strconv.ParseUint(second.Token, 10, 64)
	if !second.Held || after <= before {
		t.Errorf("%+v after %+v", second, first)
	}
	err = alive.Unlock(ctx, ns, nodeapi.UnlockData{Name: "l", Token: first.Token})
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeNotHeld}) {
		t.Errorf("an old token: %v", err)
	}
	must(alive.Unlock(ctx, ns, nodeapi.UnlockData{Name: "l", Token: second.Token}))
	again("another leads", func() (nodeapi.LockAnswer, error) {
		return alive.Campaign(ctx, ns, mine, nodeapi.LockData{Name: "e", Value: "b", TTLMillis: ttl})
	})
	again("the permit is another's", func() (nodeapi.LockAnswer, error) {
		return alive.Acquire(ctx, ns, mine, nodeapi.LockData{Name: "s", Permits: 1, TTLMillis: ttl})
	})
	poll.Until(t, soon, "the dead node's instance goes", func() bool {
		s, err := alive.GetService(ctx, ns, nodeapi.GetServiceData{Service: "web"})
		return err == nil && len(s.Instances) == 0
	})
}
