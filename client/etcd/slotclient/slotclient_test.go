package slotclient

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// member starts a simulated switch at a loopback address. It answers every read with the given
// value.
func member(t *testing.T, value string) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var p wire.Packet
			if p.Unmarshal(b[:n], wire.Profile128) != nil || p.Op != wire.Read {
				continue
			}
			reply := wire.Packet{Op: wire.ReadReply, Request: p.Request, Key: p.Key, Version: 7, Value: []byte(value)}
			answer, err := reply.Marshal(wire.Profile128)
			if err != nil {
				t.Error(err)
				return
			}
			c.WriteTo(answer, from)
		}
	}()
	return c.LocalAddr().String()
}

// controller is an admin API whose chains the test changes.
type controller struct {
	mu      sync.Mutex
	chains  []admin.Chain
	opened  int
	hosts   map[string]bool // hosts to which sessions were leased
	closed  int
	evicted []admin.PlacementEviction
	down    bool
}

func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	switch {
	case c.down:
		http.Error(w, "down", http.StatusInternalServerError)
		return
	case r.URL.Path == "/v1/chains":
		answer = c.chains
	case r.Method == http.MethodPost && r.URL.Path == "/v1/sessions":
		c.opened++
		var asked admin.SessionsRequest
		json.NewDecoder(r.Body).Decode(&asked)
		c.hosts[asked.Address] = true
		answer = admin.Sessions{Lease: "l", TTLSeconds: 10, Sessions: []admin.Session{{ID: 5, NextRequest: 1}}}
	case r.Method == http.MethodDelete:
		c.closed++
		w.WriteHeader(http.StatusNoContent)
		return
	case r.URL.Path == "/v1/placement/evictions":
		var e admin.PlacementEviction
		json.NewDecoder(r.Body).Decode(&e)
		c.evicted = append(c.evicted, e)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		answer = admin.Sessions{Lease: "l", TTLSeconds: 10}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func (c *controller) set(chains ...admin.Chain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chains = chains
}

func (c *controller) counts() (opened, closed int, evicted []admin.PlacementEviction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.closed, c.evicted
}

// waitFor waits at most 10 s until the function `is` returns true.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	poll.Until(t, 10*time.Second, what, is)
}

// Reads go to the chain's address that the controller has named, and continue while the controller
// does not answer. Close releases the sessions. The removal of a key is requested at most once a
// second.
func TestFollow(t *testing.T) {
	chain := func(address string) admin.Chain {
		return admin.Chain{Name: "main", ID: 1, ServiceAddress: address, ValueBytes: 16}
	}
	c := &controller{hosts: map[string]bool{}}
	server := httptest.NewServer(c)
	defer server.Close()
	network := NewNetwork(nil)
	ch := Follow(admin.NewClient(server.URL), network, "test", slog.New(slog.DiscardHandler))
	key := wire.MakeKey(1, 3)
	reads := func(want string) func() bool {
		return func() bool {
			value, version, err := network.Read(context.Background(), key)
			return err == nil && string(value) == want && version == 7
		}
	}
	if network.Size(key) != 0 || reads("one")() {
		t.Fatal("a chain that the controller does not have")
	}
	c.set(chain(member(t, "one")))
	waitFor(t, "reads by the first address", reads("one"))
	if network.Size(key) != 16 {
		t.Errorf("a slot has %d bytes, want 16", network.Size(key))
	}
	c.set(chain(member(t, "two")), admin.Chain{Name: "bad", ID: 2, ServiceAddress: "nonsense", ValueBytes: 16})
	waitFor(t, "reads by the second address", reads("two"))
	waitFor(t, "the first client's sessions to be given back", func() bool { opened, closed, _ := c.counts(); return opened == 2 && closed == 1 })

	c.mu.Lock()
	c.down = true
	c.mu.Unlock()
	time.Sleep(1200 * time.Millisecond)
	// On a busy machine, a reply may be late.
	waitFor(t, "reads without the controller", reads("two"))
	c.mu.Lock()
	c.down = false
	c.mu.Unlock()

	for range 5 {
		ch.Evict(placement.Key{Name: "\xffk", Entry: placement.Entry{ID: uint32(key)}}, placement.SlotUnreachable, "silent")
	}
	waitFor(t, "the eviction", func() bool { _, _, e := c.counts(); return len(e) > 0 })
	time.Sleep(100 * time.Millisecond)
	if _, _, e := c.counts(); len(e) != 1 || e[0] != (admin.PlacementEviction{Key: `\xffk`, KeyID: uint32(key), Reason: "silent"}) {
		t.Errorf("the controller was asked for %v", e)
	}

	c.set()
	waitFor(t, "the chain to be gone", func() bool { return network.Size(key) == 0 })
	c.set(chain(member(t, "three")))
	waitFor(t, "reads by the third address", reads("three"))
	ch.Close()
	if opened, closed, _ := c.counts(); opened != 3 || closed != 3 {
		t.Errorf("sessions were leased %d times and given back %d times", opened, closed)
	}
	if network.Size(key) != 0 {
		t.Error("after Close the network has a chain")
	}
	if len(c.hosts) != 1 || !c.hosts["127.0.0.1"] {
		t.Errorf("sessions were leased to %v, want this host, 127.0.0.1", c.hosts)
	}
	ch.Evict(placement.Key{Name: "late"}, placement.Forged, "") // after Close, Evict does nothing
}

// TestForgedIsTold checks that a forged slot is logged once for each placement. However often
// gateways find the slot, they ask the controller at most once a second.
func TestForgedIsTold(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/placement/evictions" {
			mu.Lock()
			asked++
			mu.Unlock()
		}
		io.WriteString(w, "[]")
	}))
	defer server.Close()
	var log strings.Builder
	ch := Follow(admin.NewClient(server.URL), NewNetwork(nil), "test", slog.New(slog.NewTextHandler(&log, nil)))
	began := time.Now()
	for time.Since(began) < evictEvery+evictEvery/2 {
		for id := range wire.Key(3) {
			ch.Evict(placement.Key{Name: "k", Entry: placement.Entry{ID: uint32(id + 1)}}, placement.Forged, "it does not open")
		}
	}
	ch.Close()
	if n := strings.Count(log.String(), "no gateway has written"); n != 3 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	mu.Lock()
	defer mu.Unlock()
	if asked == 0 || asked > 6 {
		t.Errorf("the controller was asked %d times in %v for three placements", asked, time.Since(began))
	}
}
