package adminrights

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/nodeapi/authority"
)

// oneByOne is a controller that does one thing at a time. A list takes some time.
type oneByOne struct {
	turn          chan struct{} // used as a mutex, because synctest does not count waiters of a sync.Mutex as blocked
	lists         atomic.Int32  // number of lists in progress, including waiting ones
	most          atomic.Int32
	listed, asked atomic.Int32
}

func (c *oneByOne) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := r.URL.Path == "/v1/keys" || r.URL.Path == "/v1/watches"
	if list {
		n := c.lists.Add(1)
		defer c.lists.Add(-1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		c.listed.Add(1)
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if list {
		time.Sleep(5 * time.Millisecond)
	}
	c.asked.Add(1)
	_, _ = w.Write([]byte("{}"))
}

// TestShareOfTheLeader runs a node that requests lists of keys, 64 at a time. The node must leave
// most of the leader's time to others, and learn when it may retry.
func TestShareOfTheLeader(t *testing.T) { synctest.Test(t, listsOfANode) }

func listsOfANode(t *testing.T) {
	leader := &oneByOne{turn: make(chan struct{}, 1)}
	of := func(node string) http.Handler {
		return ByNode(node, netip.MustParseAddr("192.0.2.7"), NewShare(), DefaultKeys, leader)
	}
	ids := strings.Trim(strings.Repeat("4026531839,", 2000), ",")
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/keys?prefix=node/", ""},
		{"PUT", "/v1/watches", `{"address":"192.0.2.7","port":9,"keyIds":[` + ids + `]}`},
	} {
		ask := func(ctx context.Context, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
			return w
		}
		leader.most.Store(0)
		leader.listed.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		var refused atomic.Int32
		var wrong atomic.Pointer[string]
		var work sync.WaitGroup
		attacker, other := of("n1"), of("n2")
		began := time.Now()
		for range 64 {
			work.Go(func() {
				for ctx.Err() == nil {
					w := ask(ctx, attacker, c.method, c.path, c.body)
					if w.Code == http.StatusOK || ctx.Err() != nil {
						continue
					}
					var said struct{ Error admin.Error }
					_ = json.Unmarshal(w.Body.Bytes(), &said)
					if w.Code != http.StatusServiceUnavailable || said.Error.Code != admin.CodeUnavailable ||
						w.Header().Get("Retry-After") == "" || !strings.Contains(said.Error.Message, "try again in") {
						s := fmt.Sprint(w.Code, w.Header(), w.Body)
						wrong.Store(&s)
					}
					refused.Add(1)
					time.Sleep(time.Millisecond)
				}
			})
		}
		var took []time.Duration
		for time.Since(began) < 1500*time.Millisecond {
			at := time.Now()
			if w := ask(ctx, other, "GET", "/v1/chains", ""); w.Code != http.StatusOK {
				t.Fatalf("another node is told %d %s", w.Code, w.Body)
			}
			took = append(took, time.Since(at))
			time.Sleep(2 * time.Millisecond)
		}
		cancel()
		work.Wait()
		passed := time.Since(began)
		slices.Sort(took)
		t.Logf("%s %s: another node's requests take %v, 99 of 100 at most %v; "+
			"%d lists were made in %v, %d at a time, %d refused", c.method, c.path,
			took[len(took)/2], took[len(took)*99/100], leader.listed.Load(), passed, leader.most.Load(), refused.Load())
		if s := wrong.Load(); s != nil {
			t.Errorf("%s: a node that asks too much is told %s", c.path, *s)
		}
		if took[len(took)/2] > 20*time.Millisecond {
			t.Errorf("%s: another node's requests take %v", c.path, took[len(took)/2])
		}
		if n := leader.most.Load(); n != 1 {
			t.Errorf("%s: one node has %d lists made at a time", c.path, n)
		}
		// The limit is a tenth of the time, plus the burst.
		if most := int32((passed+shareAhead)/(shareOf*5*time.Millisecond)) + 2; leader.listed.Load() > most {
			t.Errorf("%s: one node had %d lists made in %v, %d are its share", c.path, leader.listed.Load(), passed, most)
		}
	}
}

// TestChangesOfANode runs a node that creates keys without a pause. The node must be able to create
// a hundred keys a second, and to renew its sessions meanwhile.
func TestChangesOfANode(t *testing.T) { synctest.Test(t, changesOfANode) }

func changesOfANode(t *testing.T) {
	var made atomic.Int32
	h := ByNode("n1", netip.MustParseAddr("192.0.2.7"), NewShare(), DefaultKeys,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut {
				made.Add(1)
			}
		}))
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var work sync.WaitGroup
	for range 64 {
		work.Go(func() {
			for ctx.Err() == nil {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/v1/keys",
					strings.NewReader(`{"name":"node/x/a","quota":{"prefix":"node/x/","keys":9}}`)))
			}
		})
	}
	renewed := 0
	for ; time.Since(began) < 500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "/v1/sessions/a", http.NoBody))
		renewed++
	}
	cancel()
	work.Wait()
	most := int32(shareChangesAtOnce + shareChanges*time.Since(began).Seconds() + 1)
	if n := made.Load(); n < shareChangesAtOnce || n > most {
		t.Errorf("a node made %d keys in %v, and %d are its share", n, time.Since(began), most)
	}
	if renewed != 50 {
		t.Errorf("it renewed its sessions %d times", renewed)
	}
}

// TestQuotaOfTheLeader checks that the leader's own quota bounds the quota of keys that a node's
// request names.
func TestQuotaOfTheLeader(t *testing.T) {
	var got admin.KeyRequest
	h := ByNode("n1", netip.MustParseAddr("192.0.2.7"), NewShare(), func(namespace string) int {
		return map[string]int{"blue": 3}[namespace]
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
	}))
	for _, c := range []struct {
		namespace   string
		asks, given int
	}{{"blue", 1 << 30, 3}, {"blue", 2, 2}, {"red", 5, 0}} {
		body, err := json.Marshal(admin.KeyRequest{Name: "node/" + c.namespace + "/a", Node: "n2",
			Quota: &admin.KeyQuota{Prefix: "node/" + c.namespace + "/", Keys: c.asks}})
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/keys", strings.NewReader(string(body))))
		if got.Quota == nil || got.Quota.Keys != c.given || got.Node != "n1" {
			t.Errorf("%+v: the controller is asked %+v", c, got)
		}
	}
	if n := DefaultKeys("blue"); n != authority.DefaultQuota.Keys {
		t.Errorf("a leader of which nothing is said allows %d keys", n)
	}
}
