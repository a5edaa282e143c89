package lab

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// Controller is a controller in this process.
type Controller struct {
	T       *testing.T
	API     *admin.Client
	URL     string // URL of the admin API
	Running *controller.Controller
	Stop    func()
}

// StartController starts a controller with the admin API. If state is "", it keeps no state.
func (nw *Network) StartController(state string) *Controller {
	nw.T.Helper()
	top, err := topology.Load(nw.file)
	if err != nil {
		nw.T.Fatal(err)
	}
	return nw.StartControllerWith(state, top)
}

// StartControllerWith is like StartController, but uses the topology top instead of the topology in
// the file.
func (nw *Network) StartControllerWith(state string, top *topology.Topology) *Controller {
	nw.T.Helper()
	var store saved.Store = saved.Memory{}
	if state != "" {
		store = saved.File(filepath.Join(nw.dir, state))
	}
	log, err := os.OpenFile(filepath.Join(nw.dir, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.T.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := controller.New(controller.Options{Topology: top, Store: store, Log: logger})
	if err != nil {
		nw.T.Fatal(err)
	}
	nw.T.Cleanup(func() {
		log.Close()
		if nw.T.Failed() {
			b, _ := os.ReadFile(log.Name())
			nw.T.Logf("controller's log:\n%s", tail(b, 120))
		}
	})
	return Serve(nw.T, c)
}

// Serve runs a controller and its admin API until Stop is called or the test ends.
func Serve(t *testing.T, c *controller.Controller) *Controller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	server := httptest.NewServer(adminserver.Handler(c, nil))
	r := &Controller{T: t, Running: c, API: admin.NewClient(server.URL), URL: server.URL}
	var once sync.Once
	r.Stop = func() { once.Do(func() { cancel(); <-done; server.CloseClientConnections(); server.Close() }) }
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller's events:\n%s", r.History())
		}
		r.Stop()
	})
	return r
}

func tail(b []byte, lines int) []byte {
	all := bytes.Split(b, []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}

// WaitReady waits until all chains serve.
func (r *Controller) WaitReady() admin.Chain {
	r.T.Helper()
	r.WaitAllReady()
	return r.Chain()
}

func (r *Controller) WaitAllReady() {
	r.T.Helper()
	poll.Nil(r.T, 2*time.Minute, "all chains are ready", func() error { return r.API.Ready(r.T.Context()) }, r.History)
}

func (r *Controller) Chain() admin.Chain {
	r.T.Helper()
	c, err := r.API.Chain(r.T.Context(), "main")
	if err != nil {
		r.T.Fatal(err)
	}
	return *c
}

func (r *Controller) History() string {
	var b strings.Builder
	r.API.Events(context.Background(), 0, false, func(e admin.Event) error {
		fmt.Fprintf(&b, "  %s %s %s %s %s\n", e.Time.Format("05.0000"), e.Type, e.Chain, e.Switch, e.Message)
		return nil
	})
	return b.String()
}

func (r *Controller) WaitEvent(kind, sw string) {
	r.T.Helper()
	r.WaitUntil(func() (found bool) {
		r.API.Events(r.T.Context(), 0, false, func(e admin.Event) error {
			found = found || e.Type == kind && (sw == "" || e.Switch == sw)
			return nil
		})
		return found
	}, "an event "+kind+" "+sw)
}

// WaitUntil waits until the function `done` returns true.
func (r *Controller) WaitUntil(done func() bool, what string) {
	r.T.Helper()
	poll.Until(r.T, 60*time.Second, what, done, r.History)
}

// Update gives the controller another topology.
func (r *Controller) Update(top *topology.Topology) {
	r.T.Helper()
	if err := r.Running.Update(r.T.Context(), top); err != nil {
		r.T.Fatalf("%v\n%s", err, r.History())
	}
}

func (r *Controller) Switches() []admin.Switch {
	r.T.Helper()
	all, err := r.API.Switches(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	return all
}

// SessionsFor opens n sessions, and keeps them alive until the test ends.
func (r *Controller) SessionsFor(n int) []admin.Session {
	r.T.Helper()
	s, err := r.API.NewSessions(r.T.Context(), admin.SessionsRequest{Count: n, Owner: r.T.Name()})
	if err != nil {
		r.T.Fatal(err)
	}
	ctx := r.T.Context()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.TTL() / 4):
				r.API.KeepSessions(ctx, s.Lease)
			}
		}
	}()
	return s.Sessions
}

// AllReady returns whether all chains are ready, with the given number of members each.
func (r *Controller) AllReady(members int) bool {
	chains, err := r.API.Chains(r.T.Context())
	return err == nil && !slices.ContainsFunc(chains, func(c admin.Chain) bool {
		return !c.Ready || len(c.Members) != members
	})
}

// Clients starts n clients for some time. In turn, they read and write key 7 of each chain from 1
// to `chains`, and also read at the given switches. Client i runs at the host that at(i) returns.
// The function that Clients returns waits for the end of the clients, and returns their calls by
// chain.
func (r *Controller) Clients(n, chains int, switches []int, length time.Duration,
	at func(client int) *Host) func() map[uint8][]linearizable.Call {
	r.T.Helper()
	sessions := r.SessionsFor(n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	history := map[uint8][]linearizable.Call{}
	for i := range n {
		id := uint8(1 + i%chains)
		if i < chains {
			if _, err := r.API.AddKey(r.T.Context(), fmt.Sprint(id), admin.KeySpec{Name: fmt.Sprintf("k%d", id),
				KeyID: new(uint32(wire.MakeKey(id, 7)))}); err != nil {
				r.T.Fatal(err)
			}
		}
		w := Workload{Client: i, Service: ServiceAddrOf(int(id)), Keys: []uint32{uint32(wire.MakeKey(id, 7))},
			Session: sessions[i], Duration: length}
		for k := range switches {
			w.Others = append(w.Others, SwitchAddr(switches[(i+k)%len(switches)]))
		}
		wg.Go(func() {
			h, err := at(i).Work(w)
			if err != nil {
				r.T.Errorf("client %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			history[id] = append(history[id], h...)
		})
	}
	return func() map[uint8][]linearizable.Call {
		wg.Wait()
		return history
	}
}

// Counters returns a switch's event counters.
func (r *Controller) Counters(sw string) *admin.Counters {
	r.T.Helper()
	c, err := r.API.Counters(r.T.Context(), sw)
	if err != nil {
		r.T.Fatal(err)
	}
	return c
}
