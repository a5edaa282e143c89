package adminserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netcraq/netcraq/api/admin"
)

// backend is a backend for tests that records its calls, and answers from its fields.
type backend struct {
	mu     sync.Mutex
	asked  []string
	err    error
	events []admin.Event
	more   chan struct{}

	// These fields are the backend's content. If chains is nil, there is one empty chain.
	chains   []admin.Chain
	keys     []admin.Key
	switches []admin.Switch
	counted  func(sw string) *admin.Counters
}

func (b *backend) note(parts ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, strings.Join(parts, " "))
	return b.err
}

func (b *backend) Chains(context.Context) ([]admin.Chain, error) {
	if err := b.note("chains"); err != nil || b.chains == nil {
		return []admin.Chain{{Name: "main"}}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.chains, nil
}
func (b *backend) Chain(_ context.Context, c string) (*admin.Chain, error) {
	return &admin.Chain{Name: c}, b.note("chain", c)
}
func (b *backend) Recover(_ context.Context, c, sw string) (*admin.Chain, error) {
	return &admin.Chain{Name: c}, b.note("recover", c, sw)
}

func (b *backend) Metrics() http.Handler { return http.NotFoundHandler() }

func (b *backend) ChangeChain(_ context.Context, c string, ch admin.ChainChange) (*admin.Chain, error) {
	what := []string{"change", c}
	if ch.Frozen != nil {
		what = append(what, "frozen")
	}
	if ch.Members != nil {
		what = append(what, *ch.Members...)
	}
	return &admin.Chain{Name: c}, b.note(what...)
}
func (b *backend) Keys(_ context.Context, c string) ([]admin.Key, error) {
	return []admin.Key{}, b.note("keys", c)
}
func (b *backend) AddKeys(_ context.Context, c string, specs []admin.KeySpec) ([]admin.Key, error) {
	out := make([]admin.Key, len(specs))
	for i, s := range specs {
		out[i] = admin.Key{Name: s.Name, KeyID: uint32(i + 1)}
		if s.Name == "bad" {
			out[i].Error = admin.Errorf(admin.CodeAlreadyExists, "it is there")
		}
		b.note("add", c, s.Name, string(s.Value))
	}
	return out, b.err
}
func (b *backend) MoveKey(_ context.Context, c, k, to string) (*admin.Key, error) {
	return &admin.Key{Name: k, Chain: to}, b.note("move", c, k, to)
}
func (b *backend) RemoveKey(_ context.Context, c, k string) error { return b.note("remove", c, k) }
func (b *backend) Directory(_ context.Context, p string, state bool) ([]admin.Key, error) {
	return append([]admin.Key{}, b.keys...), b.note("directory", p, map[bool]string{true: "state"}[state])
}
func (b *backend) Lookup(_ context.Context, n string, _ bool) (*admin.Key, error) {
	return &admin.Key{Name: n}, b.note("lookup", n)
}
func (b *backend) RequestKey(_ context.Context, r admin.KeyRequest) (*admin.RequestedKey, error) {
	what := append([]string{"request", r.Name, string(r.Value)}, r.Chains...)
	if r.Quota != nil {
		what = append(what, r.Quota.Prefix, strconv.Itoa(r.Quota.Keys))
	}
	return &admin.RequestedKey{Key: admin.Key{Name: r.Name, VersionOffset: 1 << 63}, Created: true}, b.note(what...)
}
func (b *backend) RemoveUnused(_ context.Context, n string, v uint64) error {
	return b.note("unused", n, strconv.FormatUint(v, 10))
}
func (b *backend) Switches(context.Context) ([]admin.Switch, error) {
	err := b.note("switches")
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]admin.Switch{}, b.switches...), err
}
func (b *backend) Counters(_ context.Context, s string) (*admin.Counters, error) {
	if err := b.note("counters", s); err != nil || b.counted == nil {
		return &admin.Counters{Switch: s}, err
	}
	return b.counted(s), nil
}
func (b *backend) Watch(_ context.Context, r admin.WatchRequest) (*admin.Watch, error) {
	return &admin.Watch{TTLSeconds: 10, Refused: r.KeyIDs}, nil
}
func (b *backend) OpenSessions(_ context.Context, r admin.SessionsRequest) (*admin.Sessions, error) {
	return &admin.Sessions{Lease: "L", TTLSeconds: 30}, b.note("open", strconv.Itoa(r.Count), r.Owner, r.Address)
}
func (b *backend) KeepSessions(_ context.Context, l string) (*admin.Sessions, error) {
	return &admin.Sessions{Lease: l}, b.note("keep", l)
}
func (b *backend) CloseSessions(_ context.Context, l string) error { return b.note("close", l) }
func (b *backend) Ready(context.Context) error                     { return b.note("ready") }
func (b *backend) Events(since uint64) ([]admin.Event, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events[min(since, uint64(len(b.events))):]), b.more
}

func serve(t *testing.T, b *backend) (*admin.Client, string) {
	t.Helper()
	s := httptest.NewServer(Handler(b, nil))
	t.Cleanup(s.Close)
	return admin.NewClient(s.URL), s.URL
}

// TestClient: the client's calls reach the backend unchanged, however odd the names are.
func TestClient(t *testing.T) {
	b := &backend{}
	c, _ := serve(t, b)
	ctx := t.Context()
	frozen := true
	for _, step := range []struct {
		want string
		do   func() error
	}{
		{"chains", func() error { _, err := c.Chains(ctx); return err }},
		{"chain main", func() error { _, err := c.Chain(ctx, "main"); return err }},
		{"recover main s3", func() error { _, err := c.Recover(ctx, "main", "s3"); return err }},
		{"change main frozen", func() error { _, err := c.ChangeChain(ctx, "main", admin.ChainChange{Frozen: &frozen}); return err }},
		{"change main s2 s1", func() error {
			_, err := c.ChangeChain(ctx, "main", admin.ChainChange{Members: &[]string{"s2", "s1"}})
			return err
		}},
		{"keys main", func() error { _, err := c.Keys(ctx, "main"); return err }},
		{"add main /registry/a \x00\xff", func() error {
			k, err := c.AddKey(ctx, "main", admin.KeySpec{Name: "/registry/a", Value: []byte{0, 255}})
			if err == nil && k.KeyID != 1 {
				t.Error(k)
			}
			return err
		}},
		{"remove main /registry//a", func() error { return c.RemoveKey(ctx, "main", "/registry//a") }},
		{"remove main ..", func() error { return c.RemoveKey(ctx, "main", "..") }},
		{"remove main a?b#c%2F", func() error { return c.RemoveKey(ctx, "main", "a?b#c%2F") }},
		{"directory /registry/ state", func() error { _, err := c.Directory(ctx, "/registry/", true); return err }},
		{"directory a ", func() error { _, _, err := c.DirectoryPage(ctx, "a", "a/1", 10); return err }},
		{"directory & ", func() error { _, err := c.Directory(ctx, "&", false); return err }},
		{"lookup /registry/ä", func() error { _, err := c.Lookup(ctx, "/registry/ä"); return err }},
		{"request node/shop/a v a b node/shop/ 3", func() error {
			k, err := c.RequestKey(ctx, admin.KeyRequest{Name: "node/shop/a", Value: []byte("v"), Chains: []string{"a", "b"},
				Quota: &admin.KeyQuota{Prefix: "node/shop/", Keys: 3}})
			if err == nil && (!k.Created || k.Name != "node/shop/a" || k.VersionOffset != 1<<63) {
				t.Errorf("%+v", k)
			}
			return err
		}},
		{"unused node/shop/a 18446744073709551615", func() error { return c.RemoveUnused(ctx, "node/shop/a", 1<<64-1) }},
		{"switches", func() error { _, err := c.Switches(ctx); return err }},
		{"counters s1", func() error { _, err := c.Counters(ctx, "s1"); return err }},
		{"open 2 me 10.0.0.1", func() error {
			_, err := c.NewSessions(ctx, admin.SessionsRequest{Count: 2, Owner: "me", Address: "10.0.0.1"})
			return err
		}},
		{"keep L", func() error { _, err := c.KeepSessions(ctx, "L"); return err }},
		{"close L", func() error { return c.CloseSessions(ctx, "L") }},
		{"ready", func() error { return c.Ready(ctx) }},
	} {
		b.asked, b.err = nil, nil
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.want, err)
		}
		if !slices.Equal(b.asked, []string{step.want}) {
			t.Errorf("asked %q, want %q", b.asked, step.want)
		}
		b.err = admin.Errorf(admin.CodeUnavailable, "not now")
		var e *admin.Error
		if err := step.do(); !errors.As(err, &e) || e.Status != http.StatusServiceUnavailable || e.Message != "not now" {
			t.Errorf("%s: the backend's error came as %v", step.want, err)
		}
	}
}

func TestManyKeys(t *testing.T) {
	c, url := serve(t, &backend{})
	keys, err := c.AddKeys(t.Context(), "main", []admin.KeySpec{{Name: "a"}, {Name: "bad"}, {Name: "c"}})
	if err != nil || len(keys) != 3 || keys[1].Error == nil || keys[1].Error.Code != admin.CodeAlreadyExists ||
		keys[2].Error != nil {
		t.Error(keys, err)
	}
	if keys, err := c.AddKeys(t.Context(), "main", nil); err != nil || len(keys) != 0 {
		t.Error(keys, err)
	}
	if _, err := c.AddKey(t.Context(), "main", admin.KeySpec{Name: "bad"}); !errors.Is(err,
		&admin.Error{Code: admin.CodeAlreadyExists}) {
		t.Error(err)
	}
	resp, err := http.Post(url+"/v1/chains/main/keys", "application/json", strings.NewReader(`[{"name":"bad"}]`))
	if err != nil || resp.StatusCode != http.StatusMultiStatus {
		t.Error(resp, err)
	}
}

// TestBadRequests: bad requests get the right status and code.
func TestBadRequests(t *testing.T) {
	_, url := serve(t, &backend{})
	for _, c := range []struct {
		method, path, body, host string
		status                   int
		want                     string
	}{
		{"DELETE", "/v1/keys/a", "", "", 400, "which one must it be"},
		{"GET", "/v2/chains", "", "", 404, "there is no GET /v2/chains"},
		{"PATCH", "/v1/chains/main", "", "", 404, "there is no PATCH"},
		{"PUT", "/v1/chains/main", `{"lease": 5}`, "", 400, `unknown field \"lease\"`},
		{"PUT", "/v1/chains/main", `{"frozen": "yes"}`, "", 400, "cannot unmarshal"},
		{"PUT", "/v1/chains/main", ``, "", 400, "EOF"},
		{"PUT", "/v1/chains/main", `{} {}`, "", 400, "goes on after its JSON"},
		{"POST", "/v1/chains/main/keys", `[{"name": "a", "value": "%%%"}]`, "", 400, "illegal base64"},
		{"POST", "/v1/chains/main/keys", `{"name": "a", "keyId": -1}`, "", 400, "cannot unmarshal"},
		{"POST", "/v1/sessions", `{"count": 99999999999999999999}`, "", 400, "cannot unmarshal"},
		{"GET", "/v1/keys?limit=0", "", "", 400, "limit is \\\"0\\\": pass a number"},
		{"GET", "/v1/keys?limit=many", "", "", 400, "pass a number"},
		{"GET", "/v1/events?since=x", "", "", 400, "not an event's number"},
		{"GET", "/v1/chains", "", "evil.example", 403, "not served as"},
		{"GET", "/v1/chains", "", "localhost:20036", 200, "main"},
		{"GET", "/v1/chains", "", "[::1]:20036", 200, "main"},
		{"GET", "/healthz", "", "", 200, "ok"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.host != "" {
			req.Host = c.host
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(b), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, resp.StatusCode, b, c.status, c.want)
		}
	}
}

func TestEvents(t *testing.T) {
	b := &backend{events: []admin.Event{{ID: 1, Type: "a", Message: "first\nline two"}, {ID: 2, Type: "b"}}, more: make(chan struct{})}
	c, _ := serve(t, b)
	var got []admin.Event
	collect := func(e admin.Event) error { got = append(got, e); return nil }
	if err := c.Events(t.Context(), 0, false, collect); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.events, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	if err := c.Events(t.Context(), 1, false, collect); err != nil || len(got) != 1 || got[0].ID != 2 {
		t.Error(got, err)
	}
	// A stream with follow also delivers events that happen after its start.
	enough := errors.New("enough")
	err := c.Events(t.Context(), 0, true, func(e admin.Event) error {
		switch e.ID {
		case 2:
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, admin.Event{ID: 3})
			close(b.more)
			b.more = make(chan struct{})
		case 3:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestNoController(t *testing.T) {
	if err := admin.NewClient("127.0.0.1:1").Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Error(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "a proxy says no", http.StatusBadGateway)
	}))
	defer s.Close()
	var e *admin.Error
	_, err := admin.NewClient(s.URL).Chains(t.Context())
	if !errors.As(err, &e) || e.Status != http.StatusBadGateway || !strings.Contains(e.Message, "a proxy says no") {
		t.Error(err)
	}
}

// TestDirectoryPage: pages list each key once. If a controller does not support pages, it answers
// with all keys, and the client selects the page.
func TestDirectoryPage(t *testing.T) {
	all := []admin.Key{{Name: "a"}, {Name: "a/1"}, {Name: "a/2"}, {Name: "b"}, {Name: "c"}}
	for name, old := range map[string]bool{"pages": false, "an old controller": true} {
		b := &backend{keys: all}
		_, url := serve(t, b)
		if old {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/keys", func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(all) })
			server := httptest.NewServer(mux)
			defer server.Close()
			url = server.URL
		} else if r, err := http.Get(url + "/v1/keys?after=a&limit=2"); err != nil {
			t.Fatal(err)
		} else if text, _ := io.ReadAll(r.Body); bytes.Count(text, []byte(`"name"`)) != 2 {
			t.Errorf("a page of 2: %s", text)
		}
		c := admin.NewClient(url)
		for limit := 1; limit < 7; limit++ {
			var names []string
			for after, more := "", true; more; {
				var keys []admin.Key
				var err error
				if keys, more, err = c.DirectoryPage(t.Context(), "", after, limit); err != nil || len(keys) > limit {
					t.Fatal(name, keys, err)
				}
				for _, k := range keys {
					names, after = append(names, k.Name), k.Name
				}
			}
			if len(names) != len(all) || names[0] != "a" || names[4] != "c" {
				t.Errorf("%s, %d at once: %q", name, limit, names)
			}
		}
	}
}
