package durable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	"github.com/netcraq/netcraq/nodeapi/store"
)

const ns = "shop"

func key(name string) store.Key { return store.Key{Namespace: ns, Name: name} }

// is fails the test unless a key has the expected state.
func is(t *testing.T, what string, got store.Item, value string, version wire.Version) {
	t.Helper()
	if string(got.Value) != value || got.Found != (value != "") || got.Version != version {
		t.Errorf("%s: %+v, want %q at %v", what, got, value, version)
	}
}

func hasCode(t *testing.T, what string, err error, code nodeapi.Code, says string) {
	t.Helper()
	if e := new(nodeapi.Error); !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
		t.Errorf("%s: %v, want %s that says %q", what, err, code, says)
	}
}

// TestCalls checks the effects of each call. It runs through a gateway and directly with etcd, for
// a key in the network and a key that is not.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	client := etcdtest.Client(t, w.Endpoints()...)
	for name, s := range map[string]*Store{"gateway": open(t, Options{}, w.gateway()), "etcd": open(t, Options{}, w.Endpoints()...)} {
		for _, placed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, placed %v", name, placed), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				if placed && name == "etcd" {
					t.Skip("who writes a placed key past a gateway leaves the old value in the network")
				}
				k := key(fmt.Sprint(strings.ReplaceAll(t.Name(), " ", "/"), "/k"))
				if placed {
					remove, err := w.place(ctx, client, nameOf(k))
					if err != nil {
						t.Fatal(err)
					}
					defer remove()
				}
				calls(ctx, t, s, k)
				if placed {
					if _, err := s.Put(ctx, k, []byte("hot")); err != nil {
						t.Fatal(err)
					}
					w.read(func() error {
						got, err := s.Get(ctx, k, false)
						if string(got.Value) != "hot" {
							t.Errorf("%+v", got)
						}
						return err
					})
				}
			})
		}
	}
}

func calls(ctx context.Context, t *testing.T, s *Store, k store.Key) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(ctx, k, false)
	must(err)
	is(t, "never written", got, "", 0)
	v, err := s.Delete(ctx, k)
	must(err)
	if v != 0 {
		t.Errorf("deleting what never was: %v", v)
	}
	got, done, err := s.CompareAndSwap(ctx, k, wire.MakeVersion(3, 4), []byte("x"))
	must(err)
	is(t, "a swap on another store's version", got, "", 0)
	if done {
		t.Error("it was swapped")
	}
	first, err := s.Put(ctx, k, []byte("a"))
	must(err)
	if first.Epoch() != epoch {
		t.Errorf("the first version is %v", first)
	}
	got, done, err = s.CompareAndSwap(ctx, k, 0, []byte("b"))
	must(err)
	is(t, "a swap on 0 of what is there", got, "a", first)
	if done {
		t.Error("it was swapped")
	}
	got, done, err = s.CompareAndSwap(ctx, k, first, []byte("b"))
	must(err)
	second := got.Version
	is(t, "a swap", got, "b", second)
	if !done || second <= first {
		t.Errorf("it was not swapped, or by %v after %v", second, first)
	}
	got, done, err = s.CompareAndDelete(ctx, k, first)
	must(err)
	is(t, "a deletion on an old version", got, "b", second)
	if done {
		t.Error("it was deleted")
	}
	got, done, err = s.CompareAndDelete(ctx, k, second)
	must(err)
	third := got.Version
	is(t, "a deletion", got, "", third)
	if !done || third <= second {
		t.Errorf("it was not deleted, or by %v after %v", third, second)
	}
	got, err = s.Get(ctx, k, true)
	must(err)
	is(t, "deleted", got, "", third)
	for _, expected := range []wire.Version{0, second} {
		got, done, err = s.CompareAndSwap(ctx, k, expected, []byte("late"))
		must(err)
		is(t, "a late swap", got, "", third)
		if done {
			t.Errorf("it was swapped on %v", expected)
		}
	}
	got, done, err = s.CompareAndDelete(ctx, k, third)
	must(err)
	is(t, "deleting what is deleted", got, "", third)
	if !done {
		t.Error("the version was that")
	}
	if v, err = s.Delete(ctx, k); err != nil || v != third {
		t.Errorf("deleting again: %v, %v", v, err)
	}
	got, done, err = s.CompareAndSwap(ctx, k, third, []byte("c"))
	must(err)
	if !done || got.Version <= third {
		t.Errorf("a swap on a deletion: %+v", got)
	}
	if v, err = s.Delete(ctx, k); err != nil || v <= got.Version {
		t.Errorf("deleting: %v, %v", v, err)
	}
	if v, err = s.Put(ctx, k, []byte("d")); err != nil || v <= got.Version+1 {
		t.Errorf("writing again: %v, %v", v, err)
	}
	other := store.Key{Namespace: ns + "2", Name: k.Name}
	if got, err := s.Get(ctx, other, false); err != nil || got.Found {
		t.Errorf("another namespace's: %+v, %v", got, err)
	}
	all, err := s.List(ctx, ns, k.Name)
	if err != nil || len(all) != 1 || all[0] != k {
		t.Errorf("listed: %v, %v", all, err)
	}
	_, err = s.Put(ctx, k, make([]byte, MaxValue+1))
	hasCode(t, "a value that is too long", err, nodeapi.CodeTooLarge, "16385 bytes; one of the durable namespace shop has at most 16384")
	if _, err = s.Put(ctx, k, make([]byte, MaxValue)); err != nil {
		t.Errorf("the longest value: %v", err)
	}
}

// TestTombstonesGo checks that a key counts as never written after its tombstone has expired. A key
// that was written again must remain.
func TestTombstonesGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, Options{Kept: 500 * time.Millisecond}, w.gateway())
	ctx := t.Context()
	var before wire.Version
	for _, name := range []string{"goes", "stays"} {
		if _, err := s.Put(ctx, key(name), []byte("v")); err != nil {
			t.Fatal(err)
		}
		v, err := s.Delete(ctx, key(name))
		if err != nil {
			t.Fatal(err)
		}
		before = max(before, v)
	}
	if _, err := s.Put(ctx, key("stays"), []byte("w")); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, soon, "the tombstone goes", func() bool {
		got, err := s.Get(ctx, key("goes"), false)
		return err == nil && got.Version == 0
	})
	got, err := s.Get(ctx, key("stays"), false)
	if err != nil || string(got.Value) != "w" {
		t.Errorf("what was written again: %+v, %v", got, err)
	}
	if v, err := s.Put(ctx, key("goes"), []byte("w")); err != nil || v <= before {
		t.Errorf("written anew: %v after %v, %v", v, before, err)
	}
	// A lease that was revoked must be replaced.
	leases, err := s.o.Etcd.now.Load().Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		_, _ = s.o.Etcd.now.Load().Revoke(ctx, l.ID)
	}
	s.graves.mu.Lock()
	// pretend that the lease is still valid for an hour, as if it had not been revoked
	s.graves.since = time.Now().Add(time.Hour)
	s.graves.mu.Unlock()
	if _, err := s.Delete(ctx, key("stays")); err != nil {
		t.Errorf("deleting without a lease: %v", err)
	}
}

// TestQuota checks that the quota holds exactly when two nodes create many keys concurrently.
func TestQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 20
	o := Options{Quota: func(string) int { return most }}
	stores := []*Store{open(t, o, w.gateway()), open(t, o, w.gateway())}
	var made, refused atomic.Int64
	var work sync.WaitGroup
	for i := range 2 * most {
		work.Go(func() {
			_, err := stores[i%2].Put(t.Context(), key(fmt.Sprint("k", i)), []byte("v"))
			switch {
			case err == nil:
				made.Add(1)
			case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}):
				refused.Add(1)
				hasCode(t, "beyond the quota", err, nodeapi.CodeQuotaExceeded, "has 20 durable keys")
			default:
				t.Error(err)
			}
		})
	}
	work.Wait()
	if made.Load() != most || refused.Load() != most {
		t.Errorf("%d keys were made and %d refused", made.Load(), refused.Load())
	}
	all, err := stores[0].List(t.Context(), ns, "")
	if err != nil || len(all) != most {
		t.Errorf("%d keys, %v", len(all), err)
	}
	// Existing keys can still be written. Another namespace has its own quota.
	if _, err := stores[0].Put(t.Context(), all[0], []byte("w")); err != nil {
		t.Error(err)
	}
	if _, err := stores[0].Put(t.Context(), store.Key{Namespace: "other", Name: "k"}, []byte("w")); err != nil {
		t.Error(err)
	}
	refusal := nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "may make none")
	ctx := store.WithoutCreating(t.Context(), refusal)
	if _, err := stores[0].Put(ctx, store.Key{Namespace: "other", Name: "new"}, []byte("w")); !errors.Is(err, refusal) {
		t.Errorf("who may make no keys: %v", err)
	}
	if _, err := stores[0].Put(ctx, all[0], []byte("w")); err != nil {
		t.Errorf("who may make no keys writes one that is there: %v", err)
	}
}

// TestKilled checks that acknowledged writes survive a crash of etcd. While etcd is down, calls
// must fail with a reason.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, Options{Patience: time.Second}, w.Endpoints()...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	want := map[string]wire.Version{}
	for i := range 20 {
		name := fmt.Sprint("k", i)
		v, err := s.Put(ctx, key(name), []byte(name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = v
	}
	gone, err := s.Delete(ctx, key("k0"))
	if err != nil {
		t.Fatal(err)
	}
	w.Kill(0)
	poll.Until(t, soon, "a call is refused", func() bool {
		_, err := s.Get(ctx, key("k1"), false)
		return errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable})
	})
	_, err = s.Put(ctx, key("k1"), []byte("x"))
	hasCode(t, "a write meanwhile", err, nodeapi.CodeUnavailable, "cannot be reached at")
	_, err = s.Delete(ctx, key("k1"))
	hasCode(t, "a deletion meanwhile", err, nodeapi.CodeUnavailable, "cannot be reached at")
	_, err = s.List(ctx, ns, "")
	hasCode(t, "a list meanwhile", err, nodeapi.CodeUnavailable, "cannot be reached at")
	w.Start(0)
	poll.Nil(t, soon, "etcd is back", func() error { _, err := s.Get(ctx, key("k1"), false); return err })
	for name, v := range want {
		got, err := s.Get(ctx, key(name), false)
		switch {
		case err != nil:
			t.Error(err)
		case name == "k0":
			is(t, name, got, "", gone)
		default:
			is(t, name, got, name, v)
		}
	}
}

// TestNobody checks that calls fail in time if no endpoint answers.
func TestNobody(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Patience: time.Minute}, "http://"+testport.Free(t))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Get(ctx, key("k"), false)
	hasCode(t, "a read", err, nodeapi.CodeUnavailable, "cannot be reached")
	_, err = s.Put(ctx, key("k"), []byte("v"))
	hasCode(t, "a write", err, nodeapi.CodeUnavailable, "cannot be reached")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Put(canceled, key("k"), []byte("v"))
	hasCode(t, "a write that was canceled", err, nodeapi.CodeCanceled, "")
}

// TestDenied checks the case that etcd's authentication does not let the server write. The error
// must say so, and no outcome may be unknown.
func TestDenied(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	root := etcdtest.Client(t, cluster.Endpoints()...)
	ctx := t.Context()
	for _, err := range []error{
		second(root.UserAdd(ctx, "root", "r")), second(root.UserGrantRole(ctx, "root", "root")),
		second(root.UserAdd(ctx, "node", "n")), second(root.RoleAdd(ctx, "reads")),
		second(root.RoleGrantPermission(ctx, "reads", Prefix, clientv3.GetPrefixRangeEnd(Prefix),
			clientv3.PermissionType(clientv3.PermRead))),
		second(root.UserGrantRole(ctx, "node", "reads")), second(root.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	connection, err := Dial(Access{Endpoints: cluster.Endpoints(), User: "node", PasswordFile: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	s := New(Options{Etcd: connection, Patience: soon})
	t.Cleanup(func() { s.Close() })
	if _, err := s.Get(ctx, key("k"), false); err != nil {
		t.Error(err)
	}
	_, err = s.Put(ctx, key("k"), []byte("v"))
	hasCode(t, "a write", err, nodeapi.CodePermissionDenied, "permission denied")
}

func second[T any](_ T, err error) error { return err }
