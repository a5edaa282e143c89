package leadership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

var quiet = slog.New(slog.DiscardHandler)

// TestAlone: without etcd, a process leads at once and places no keys. When it ends, it returns the
// reason.
func TestAlone(t *testing.T) {
	top, err := topology.Load("../topology/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	over := errors.New("over")
	var replica adminserver.Replica
	err = Run(ctx, Config{Store: saved.Memory{}, Log: quiet, Lead: func(ctx context.Context, term *Term) error {
		o := Options{Topology: top, Replica: &replica, Log: quiet,
			Placement: &Placement{Window: time.Minute, Prefix: "/p/", Limits: policy.DefaultLimits()}}
		if _, err := New(term, o); err == nil || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("placement without etcd: %v", err)
		}
		o.Placement = nil
		s, err := New(term, o)
		if err != nil {
			return err
		}
		time.AfterFunc(10*time.Millisecond, func() { stop(over) })
		return s.Run(ctx)
	}})
	if !errors.Is(err, over) {
		t.Errorf("it says %v; want %v", err, over)
	}
}

// TestTerms: after a term has ended for any reason, another process leads. A process that fails to
// lead tries again.
func TestTerms(t *testing.T) {
	etcd := etcdtest.Start(t)
	type led struct {
		name string
		ctx  context.Context
		end  chan error
	}
	terms, waits := make(chan led), make(chan string, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() {
			done <- Run(ctx, Config{Etcd: &Etcd{Endpoints: []string{etcd}, Prefix: "/n"}, Log: quiet,
				Identity: etcdstore.Identity{Name: name}, StandBy: func(etcdstore.Identity) { waits <- name },
				Lead: func(ctx context.Context, term *Term) error {
					end := make(chan error)
					terms <- led{name, ctx, end}
					select {
					case err := <-end:
						return err
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}})
		}()
	}
	first := <-terms
	<-waits // wait until the other process leads
	first.end <- errors.New("it cannot lead")
	second := <-terms
	if second.name == first.name {
		t.Errorf("%s leads again, and the other waited for longer", second.name)
	}
	// The first process tries again after a pause.
	for waiting := range waits {
		if waiting == first.name {
			break
		}
	}
	second.end <- ErrDeposed
	third := <-terms
	if third.name != first.name {
		t.Errorf("%s leads, and not %s again", third.name, first.name)
	}
	stop()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}
	if third.ctx.Err() == nil {
		t.Error("a term went on")
	}
}

// TestBadEtcd: a bad configuration of etcd is found before any request.
func TestBadEtcd(t *testing.T) {
	e := Etcd{Endpoints: []string{"127.0.0.1:1"}, Prefix: "/n", CA: "/nowhere.pem"}
	if _, err := e.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd's certificates") {
		t.Error(err)
	}
	if p := e.KeyPrefix(); p != "/n/" {
		t.Error(p)
	}
}
