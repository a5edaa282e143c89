package placement_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

const prefix = placement.DefaultPrefix

func etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(),
		LogOutput: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func follow(t *testing.T, c *clientv3.Client) *placement.Follower {
	t.Helper()
	f, err := placement.Follow(t.Context(), c, prefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// wait waits until the follower knows a revision.
func wait(t *testing.T, f *placement.Follower, revision int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		changed := f.Changed()
		if f.Revision() >= revision {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the follower is as of revision %d; want %d", f.Revision(), revision)
		}
	}
}

// A placement is created, reaches the follower, and is deleted. Each happens exactly once, with the
// right mod revision.
func TestPutDelete(t *testing.T) {
	c := etcd(t)
	s := placement.Store{KV: c, Prefix: prefix}
	f := follow(t, c)
	ctx := t.Context()
	for i, key := range []string{"/a", "\x00\xff", "x/" + prefix, prefix[:len(prefix)-1]} {
		want := placement.Entry{ID: 0x01000001, Chain: "0"}
		e, err := s.Put(ctx, key, want)
		if want.Mod = e.Mod; err != nil || e != want || e.Mod == 0 {
			t.Fatalf("putting %q: %v, %v", key, e, err)
		}
		if _, err := s.Put(ctx, key, want); !errors.Is(err, placement.ErrChanged) {
			t.Fatalf("putting %q again: %v; want that it has changed", key, err)
		}
		wait(t, f, e.Mod)
		if got, ok := f.Lookup(key); !ok || got != e {
			t.Fatalf("%q: the follower has %v, %v; want %v", key, got, ok, e)
		}
		if err := s.Delete(ctx, key, e.Mod-1); !errors.Is(err, placement.ErrChanged) {
			t.Fatalf("deleting another placement of %q: %v", key, err)
		}
		if err := s.Delete(ctx, key, e.Mod, clientv3.Compare(clientv3.Version("leader"), ">",
			0)); !errors.Is(err, placement.ErrChanged) {
			t.Fatalf("deleting %q on a condition that does not hold: %v", key, err)
		}
		if err := s.Delete(ctx, key, e.Mod); err != nil {
			t.Fatal(err)
		}
		wait(t, f, e.Mod+1)
		if got, ok := f.Lookup(key); ok || f.Len() != 0 {
			t.Fatalf("%q (%d): the follower has %v after its deletion", key, i, got)
		}
		if err := s.Delete(ctx, key, e.Mod); !errors.Is(err, placement.ErrChanged) {
			t.Fatalf("deleting %q again: %v", key, err)
		}
	}
	for _, bad := range []struct {
		key string
		e   placement.Entry
	}{
		{"", placement.Entry{ID: 1, Chain: "0"}},
		{prefix + "moves", placement.Entry{ID: 1, Chain: "0"}},
		{strings.Repeat("k", 5000), placement.Entry{ID: 1, Chain: "0"}},
		{"k", placement.Entry{Chain: "0"}},
		{"k", placement.Entry{ID: 1}},
	} {
		if _, err := s.Put(ctx, bad.key, bad.e); !errors.Is(err, placement.ErrInvalid) {
			t.Errorf("putting %.20q, %v: %v", bad.key, bad.e, err)
		}
	}
}

// Whatever happens to its watch, a follower reaches the present state, and its content is always
// the directory as of its revision.
func TestFollow(t *testing.T) {
	c := etcd(t)
	s := placement.Store{KV: c, Prefix: prefix}
	f := follow(t, c)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 2))
	there := map[string]placement.Entry{}
	for i := range 300 {
		key := fmt.Sprint("k", r.IntN(20))
		if e, ok := there[key]; ok {
			if err := s.Delete(ctx, key, e.Mod); err != nil {
				t.Fatal(err)
			}
			delete(there, key)
			continue
		}
		e, err := s.Put(ctx, key, placement.Entry{ID: uint32(i + 1), Chain: "0"})
		if err != nil {
			t.Fatal(err)
		}
		there[key] = e
		switch i % 50 {
		case 0: // In this case, Refresh is called before the watch delivers the change.
			if err := f.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			if got, ok := f.Lookup(key); !ok || got != e {
				t.Fatalf("%q after a refresh: %v, %v; want %v", key, got, ok, e)
			}
		case 1: // In this case, the revision from which the watch would continue is compacted.
			if _, err := c.Compact(ctx, e.Mod); err != nil {
				t.Fatal(err)
			}
		}
	}
	last, err := s.Put(ctx, "last", placement.Entry{ID: 1, Chain: "0"})
	if err != nil {
		t.Fatal(err)
	}
	there["last"] = last
	wait(t, f, last.Mod)
	same(t, f.Cache, there)
}

func same(t *testing.T, c *placement.Cache, want map[string]placement.Entry) {
	t.Helper()
	all := c.LookupRange("\x00", "\x00")
	if len(all) != len(want) || c.Len() != len(want) {
		t.Errorf("%d keys; want %d", len(all), len(want))
	}
	for _, k := range all {
		if want[k.Name] != k.Entry {
			t.Errorf("%q: %v; want %v", k.Name, k.Entry, want[k.Name])
		}
	}
}

// A watch from a compacted revision starts again with the present state.
func TestCompacted(t *testing.T) {
	c := etcd(t)
	s := placement.Store{KV: c, Prefix: prefix}
	e, err := s.Put(t.Context(), "a", placement.Entry{ID: 1, Chain: "0"})
	if err != nil {
		t.Fatal(err)
	}
	f := placement.NewStale(c, prefix) // its cache is at revision 0
	for range 3 {
		if _, err := c.Put(t.Context(), "other", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(t.Context(), e.Mod+2); err != nil {
		t.Fatal(err)
	}
	f.Start()
	t.Cleanup(f.Close)
	wait(t, f.Follower, e.Mod)
	same(t, f.Cache, map[string]placement.Entry{"a": e})
}

// An entry that cannot be parsed counts as absent, and disappears when it is replaced or deleted.
func TestBroken(t *testing.T) {
	c := etcd(t)
	f := follow(t, c)
	for i, bad := range []string{"", "{", `{"id":1}`, `{"id":4294967296,"chain":"0"}`, `{"id":0,"chain":"0"}`} {
		good, err := c.Put(t.Context(), placement.Name(prefix, "k"), `{"id":1,"chain":"0"}`)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, f, good.Header.Revision)
		if _, ok := f.Lookup("k"); !ok {
			t.Fatal("not there")
		}
		r, err := c.Put(t.Context(), placement.Name(prefix, "k"), bad)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, f, r.Header.Revision)
		if e, ok := f.Lookup("k"); ok {
			t.Errorf("%d: %q was read as %v", i, bad, e)
		}
		if _, broken, _, err := (placement.Store{KV: c, Prefix: prefix}).List(t.Context()); err != nil ||
			!errors.Is(broken["k"], placement.ErrInvalid) {
			t.Errorf("%q: listed with %v, %v", bad, broken, err)
		}
	}
}

// The fence holds if and only if the gateway knows every placement in the range.
func TestFence(t *testing.T) {
	c := etcd(t)
	s := placement.Store{KV: c, Prefix: prefix}
	mods := map[string]int64{}
	for i, key := range []string{"a", "b", "b/1", "\xff\xff"} {
		e, err := s.Put(t.Context(), key, placement.Entry{ID: uint32(i + 1), Chain: "0"})
		if err != nil {
			t.Fatal(err)
		}
		mods[key] = e.Mod
	}
	if _, err := c.Put(t.Context(), prefix+"placee", "after all placements"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key, end string
		newest   int64
	}{
		{"a", "", mods["a"]}, {"b", "", mods["b"]}, {"c", "", 0}, {"\xff\xff", "", mods["\xff\xff"]},
		{"a", "b", mods["a"]}, {"a", "c", mods["b/1"]}, {"b/", "b0", mods["b/1"]}, {"b0", "z", 0},
		{"b", "\x00", mods["\xff\xff"]}, {"\x00", "\x00", mods["\xff\xff"]}, {"\x00", "b", mods["a"]}, {"\xff\xff\x00", "\x00", 0},
	} {
		for revision := int64(0); revision <= mods["\xff\xff"]+2; revision++ {
			r, err := c.Txn(t.Context()).If(clientv3.Cmp(*placement.Fence(prefix, test.key, test.end,
				revision))).Commit()
			if err != nil {
				t.Fatal(err)
			}
			if want := revision >= test.newest; r.Succeeded != want {
				t.Errorf("[%q, %q) as of %d: %v; want %v", test.key, test.end, revision, r.Succeeded, want)
			}
		}
	}
}

// A cache skips changes that it knows, and never goes back.
func TestCache(t *testing.T) {
	c := placement.NewCache()
	a, b := placement.Entry{ID: 1, Chain: "0", Mod: 5}, placement.Entry{ID: 2, Chain: "0", Mod: 9}
	c.Reset(7, map[string]placement.Entry{"a": a})
	c.Reset(6, nil)
	c.Apply([]placement.Change{{Key: "a", Entry: placement.Entry{Mod: 3}, Deleted: true}, {Key: "b",
		Entry: b}, {Key: "b/2", Entry: b}})
	if c.Revision() != 9 {
		t.Errorf("revision %d; want 9", c.Revision())
	}
	same(t, c, map[string]placement.Entry{"a": a, "b": b, "b/2": b})
	names := func(key, end string) (out []string) {
		for _, k := range c.LookupRange(key, end) {
			out = append(out, k.Name)
		}
		return out
	}
	for _, test := range []struct {
		key, end string
		want     []string
	}{
		{"a", "", []string{"a"}}, {"c", "", nil}, {"a", "b", []string{"a"}},
		{"a", "b0", []string{"a", "b", "b/2"}}, {"b", "\x00", []string{"b", "b/2"}},
		{"b", "a", nil},
	} {
		if got := names(test.key, test.end); !slices.Equal(got, test.want) {
			t.Errorf("[%q, %q): %q; want %q", test.key, test.end, got, test.want)
		}
	}
}
