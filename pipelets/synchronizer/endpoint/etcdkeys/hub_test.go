package etcdkeys_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
)

func shared(t *testing.T, hub *etcdkeys.Hub, address, name string) *etcdkeys.Sink {
	t.Helper()
	s, err := etcdkeys.NewSink(pipeletapi.Etcd{Endpoints: []string{address}, Prefix: "out/"}, nil, hub, name, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestTogether checks many sinks that write at once. Some write for the same pipelet, some write to
// the same key, and some commits are too large to merge. Each commit must be executed once or not
// at all, and its sink must know which. There must be far fewer transactions than commits.
func TestTogether(t *testing.T) {
	const names, rounds = 40, 25
	address, c := start(t, embedded.Config{})
	hub := etcdkeys.NewHub()
	var mu sync.Mutex
	done, conflicts := map[string]int{}, 0
	var all sync.WaitGroup
	for i := range names + 5 { // five of the names have two sinks each, which are rivals
		name := fmt.Sprintf("default/p%d/x", i%names)
		s := shared(t, hub, address, name)
		all.Go(func() {
			was, err := s.Open(t.Context())
			for n := 0; n < rounds && !t.Failed(); n++ {
				next := exactlyonce.State{Position: exactlyonce.Position{Epoch: "e", Seq: was.Position.Seq + 1},
					Rows: was.Rows + 1}
				rows := []endpoint.Row{{Key: name + "/count", Value: fmt.Append(nil, next.Rows)}}
				if i%3 == 0 {
					rows = append(rows, endpoint.Row{Key: "common", Value: []byte(name)},
						endpoint.Row{Key: name + "/none", Deleted: true})
				}
				if i%7 == 0 {
					rows = append(rows, endpoint.Row{Key: name + "/big", Value: make([]byte, 40<<10)})
				}
				if i%11 == 0 && n%5 == 0 {
					rows = append(rows, endpoint.Row{Key: name + "/large", Value: make([]byte, 100<<10)})
				}
				err = s.Commit(t.Context(), was, next, rows)
				mu.Lock()
				if err == nil {
					done[name]++
				} else {
					conflicts++
				}
				mu.Unlock()
				if was = next; exactlyonce.KindOf(err) == exactlyonce.Conflict {
					was, err = s.Open(t.Context())
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	for i := range names {
		name := fmt.Sprintf("default/p%d/x", i)
		state, err := shared(t, nil, address, name).Open(t.Context())
		r, err2 := c.Get(t.Context(), "out/"+name+"/count")
		if err != nil || err2 != nil || int(state.Rows) != done[name] || len(r.Kvs) != 1 ||
			string(r.Kvs[0].Value) != fmt.Sprint(done[name]) || r.Kvs[0].Version != int64(done[name]) {
			t.Errorf("%s: %d commits were done; it says %+v, %v, %v %v", name, done[name], state, r.Kvs, err, err2)
		}
	}
	r, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d commits, %d of them lost to a rival, in %d transactions", (names+5)*rounds, conflicts, r.Header.Revision-1)
	if conflicts == 0 || r.Header.Revision > (names+5)*rounds*2/3 {
		t.Error("nobody was refused, or nothing went together")
	}
}

// TestTogetherRefused checks that a sink without permission does not stop other sinks. A sink that
// stops waiting has either written nothing, or learns that it has written.
func TestTogetherRefused(t *testing.T) {
	address, c := start(t, embedded.Config{})
	hub := etcdkeys.NewHub()
	var sinks [6]*etcdkeys.Sink
	for i := range sinks {
		sinks[i] = shared(t, hub, address, fmt.Sprintf("default/p%d/x", i))
		if _, err := sinks[i].Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for n := range 20 {
		for i, s := range sinks {
			all.Go(func() {
				ctx, rows := t.Context(), []endpoint.Row{{Key: fmt.Sprintf("%d/%d", i, n), Value: []byte("1")}}
				switch i {
				case 0:
					rows = append(rows, endpoint.Row{Key: strings.Repeat("x", 2<<20)})
				case 1:
					ctx = gone
				}
				err := s.Commit(ctx, state(uint64(n)), state(uint64(n+1)), rows)
				if i > 1 && err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if i == 0 && exactlyonce.KindOf(err) != exactlyonce.TooLarge {
					t.Errorf("too large a row: %v", err)
				}
			})
		}
		all.Wait()
	}
	r, err := c.Get(t.Context(), "out/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || r.Count < 4*20 || r.Count > 5*20 {
		t.Errorf("there are %d rows, %v", r.Count, err)
	}
}
