package inprocess

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/system/lab"
)

// request requests a key, and retries while an earlier request for it is in progress.
func request(t *testing.T, r *lab.Controller, what admin.KeyRequest) (k *admin.RequestedKey, err error) {
	t.Helper()
	poll.Until(t, 10*time.Second, what.Name+" is settled", func() bool {
		k, err = r.API.RequestKey(t.Context(), what)
		return !errors.Is(err, &admin.Error{Code: admin.CodeUnavailable})
	})
	return k, err
}

// TestRequestKey checks three rules of the controller. It chooses the chain with the most free
// slots. It makes only one key for a name, however many callers request the key. It enforces
// quotas.
func TestRequestKey(t *testing.T) {
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	if _, err := r.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := map[string]int{}
	ids := map[string][]uint32{}
	quota := &admin.KeyQuota{Prefix: "node/shop/", Keys: 3}
	for i := range 12 {
		name := fmt.Sprintf("node/shop/k%d", i%3)
		wg.Go(func() {
			k, err := request(t, r, admin.KeyRequest{Name: name, Quota: quota})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[name] = append(ids[name], k.KeyID)
			if k.Created {
				created[name]++
			}
		})
	}
	wg.Wait()
	if len(ids) != 3 {
		t.Fatal(ids)
	}
	for name, got := range ids {
		slices.Sort(got)
		if created[name] != 1 || len(slices.Compact(got)) != 1 {
			t.Errorf("%s: KEY_IDs %v, made %d times", name, got, created[name])
		}
	}
	// Concurrent requests may see the same number of free slots. Later requests compensate for
	// that.
	for i := range 2 {
		if _, err := request(t, r, admin.KeyRequest{Name: fmt.Sprint("node/more/", i)}); err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	for _, ch := range []string{"a", "b"} {
		c, err := r.API.Chain(t.Context(), ch)
		if err != nil {
			t.Fatal(err)
		}
		count[ch] = c.Keys
	}
	if count["a"] != 3 || count["b"] != 3 {
		t.Errorf("keys by chain: %v", count)
	}
	_, err := r.API.RequestKey(t.Context(), admin.KeyRequest{Name: "node/shop/more", Quota: quota})
	if e := (*admin.Error)(nil); !errors.As(err, &e) || e.Code != admin.CodeQuotaExceeded || e.Status != 507 ||
		!strings.Contains(e.Message, "there are 3 keys") || !strings.Contains(e.Message, "there may be 3") {
		t.Errorf("beyond the quota: %v", err)
	}
	for name, what := range map[string]admin.KeyRequest{
		"invalid_argument": {Name: "node/shop/x", Quota: &admin.KeyQuota{Prefix: "node/x/", Keys: 9}},
		"not_found":        {Name: "node/x/y", Chains: []string{"b", "nowhere"}},
	} {
		if _, err := r.API.RequestKey(t.Context(), what); !errors.Is(err, &admin.Error{Code: name}) {
			t.Errorf("%+v: %v", what, err)
		}
	}
	// Only one chain may be used, until it is full.
	ch, err := r.API.Chain(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	var fill []admin.KeySpec
	for i := ch.Keys; i < min(ch.Slots, 4096); i++ {
		fill = append(fill, admin.KeySpec{Name: fmt.Sprint("fill", i)})
	}
	if len(fill)+ch.Keys < ch.Slots {
		t.Logf("chain b has %d slots: it is not filled", ch.Slots)
		return
	}
	if _, err := r.API.AddKeys(t.Context(), "b", fill); err != nil {
		t.Fatal(err)
	}
	_, err = r.API.RequestKey(t.Context(), admin.KeyRequest{Name: "node/x/y", Chains: []string{"b"}})
	if !errors.Is(err, &admin.Error{Code: admin.CodeResourceExhausted}) || !strings.Contains(err.Error(),
		fmt.Sprintf("b has %d of %d", ch.Slots, ch.Slots)) {
		t.Error(err)
	}
}

// TestRequestKeysOfANode checks that a single node cannot use up the slots of a chain. If it
// requests too many keys, it gets an error.
func TestRequestKeysOfANode(t *testing.T) {
	x := newTestbed(t, twoChains())
	x.change(func(top map[string]any) { top["chains"].([]any)[1].(map[string]any)["slots"] = 4 })
	r := x.controller()
	r.WaitAllReady()
	for i := range 3 {
		what := admin.KeyRequest{Name: fmt.Sprint("node/x/", i), Chains: []string{"b"}, Node: "worker1"}
		_, err := request(t, r, what)
		if i < 2 && err != nil || i == 2 && (!errors.Is(err, &admin.Error{Code: admin.CodeResourceExhausted}) ||
			!strings.Contains(err.Error(), "worker1 has 2, and 2 are free")) {
			t.Errorf("key %d of a node: %v", i, err)
		}
	}
	if _, err := request(t, r, admin.KeyRequest{Name: "node/x/0", Chains: []string{"b"}, Node: "worker1"}); err != nil {
		t.Errorf("a key that it has already: %v", err)
	}
	for _, by := range []string{"worker2", ""} {
		if _, err := request(t, r, admin.KeyRequest{Name: "node/y/" + by, Chains: []string{"b"}, Node: by}); err != nil {
			t.Errorf("others have no room: %q: %v", by, err)
		}
	}
}

// TestVersionsByName checks the versions of a name that the directory computes. They must never
// decrease over moves and removals. A move alone must not change the version.
func TestVersionsByName(t *testing.T) {
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	// Freezing and unfreezing gives chain a a higher epoch. Its slot is also written often.
	frozen := true
	for range 3 {
		for _, frozen = range []bool{true, false} {
			if _, err := r.API.ChangeChain(t.Context(), "a", admin.ChainChange{Frozen: &frozen}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const name = "node/shop/k"
	version := func() (wire.Version, *admin.Key) {
		t.Helper()
		var k *admin.Key
		poll.Nil(t, 10*time.Second, "the key is looked up", func() (err error) {
			k, err = r.API.Lookup(t.Context(), name)
			return err
		})
		keys, err := r.API.Directory(t.Context(), name, true)
		if err != nil || len(keys) != 1 || len(keys[0].State) == 0 || keys[0].State[0].Version == 0 {
			t.Fatal(keys, err)
		}
		return wire.Version(keys[0].State[0].Version + k.VersionOffset), k
	}
	k, err := request(t, r, admin.KeyRequest{Name: name, Chains: []string{"a"}})
	if err != nil || !k.Created || k.Chain != "a" || k.Unwritten == 0 {
		t.Fatalf("%+v, %v", k, err)
	}
	s, err := r.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := version()
	if uint64(first) != k.Unwritten {
		t.Errorf("made at %v, and its version is %v", wire.Version(k.Unwritten), first)
	}
	service := map[string]int{}
	for _, c := range twoChains().Chains {
		service[c.Name] = c.ID
	}
	for i := range 5 {
		x.mustWrite(lab.ServiceAddrOf(service["a"]), &s.Sessions[0], k.KeyID, fmt.Sprint(i))
	}
	last, _ := version()
	if last <= first {
		t.Errorf("%v, then %v", first, last)
	}
	for _, to := range []string{"b", "a", "b"} {
		from, err := r.API.Lookup(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.API.MoveKey(t.Context(), from.Chain, name, to); err != nil {
			t.Fatal(err)
		}
		v, now := version()
		if v != last || now.Chain != to || now.Unwritten != k.Unwritten {
			t.Errorf("moved to %s: version %v, before %v; %+v", to, v, last, now)
		}
		x.mustWrite(lab.ServiceAddrOf(service[to]), &s.Sessions[0], now.KeyID, "at "+to)
		if v, _ = version(); v <= last {
			t.Errorf("written in %s: version %v, before %v", to, v, last)
		}
		last = v
		// The key cannot be moved again while its old slot is being removed.
		poll.Until(t, 10*time.Second, "it can be moved again", func() bool {
			c, err := r.API.Chain(t.Context(), from.Chain)
			return err == nil && c.Keys == 0
		})
	}
	if err := r.API.RemoveKey(t.Context(), "b", name); err != nil {
		t.Fatal(err)
	}
	again, err := request(t, r, admin.KeyRequest{Name: name, Chains: []string{"b"}})
	if v, _ := version(); err != nil || !again.Created || v <= last || uint64(v) != again.Unwritten {
		t.Errorf("there again: %+v, version %v, before %v; %v", again, v, last, err)
	}
	if ms := again.SettledMillis; ms < 0 || ms > 60_000 {
		t.Errorf("the KEY_ID of before went %d ms ago", ms)
	}
}
