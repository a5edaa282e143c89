package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/netcraq/netcraq/controlplane/controller/observe"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestPanicEnds: a panic in the controller's goroutine ends the process. Otherwise the process
// would hold up the network, and stay leader until somebody kills it.
func TestPanicEnds(t *testing.T) {
	n, err := newNetwork(&topology.Topology{}, tableplan.NewNumbering(nil), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := keyspace.New(nil, keyspace.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{dir: dir, wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		saver: saved.NewSaver(saved.Memory{}),
		sess:  sessions.New(1, 9, time.Minute, nil), events: observe.NewLog(slog.New(slog.DiscardHandler), nil),
		touched: map[*chainState]bool{}}
	c.current.Store(n)
	c.leased.Store(&map[string][]p4rt.Entry{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		c.Run(ctx)
	}()
	c.post(func() { panic("it is not so") })
	select {
	case why := <-ended:
		if why != "it is not so" {
			t.Errorf("it ended for %v", why)
		}
	case <-time.After(5 * time.Second):
		t.Error("it goes on without its goroutine")
	}
}
