package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestTransact checks that a transaction writes everything or nothing, with one version. It uses a
// gateway, and etcd directly, with keys in the network and keys that are not.
func TestTransact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := etcdtest.Client(t, w.Endpoints()...)
	for name, s := range map[string]*Store{"gateway": open(t, Options{}, w.gateway()), "etcd": open(t, Options{}, w.Endpoints()...)} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
			defer cancel()
			of := func(n string) string { return name + "/" + n }
			if name == "gateway" {
				for _, n := range []string{"a", "b"} {
					remove, err := w.place(ctx, client, nameOf(key(of(n))))
					if err != nil {
						t.Fatal(err)
					}
					defer remove()
				}
			}
			transacts(ctx, t, s, of)
			if name != "gateway" {
				return
			}
			for _, n := range []string{"a", "b"} {
				w.read(func() error {
					got, err := s.Get(ctx, key(of(n)), false)
					if string(got.Value) != "last" {
						t.Errorf("%s: %+v", n, got)
					}
					return err
				})
			}
		})
	}
}

func transacts(ctx context.Context, t *testing.T, s *Store, of func(string) string) {
	t.Helper()
	txn := func(what string, done bool, compare map[string]wire.Version, writes ...store.Write) []wire.Version {
		t.Helper()
		x := store.Transaction{Namespace: ns}
		for n, v := range compare {
			x.Compare = append(x.Compare, store.Comparison{Name: of(n), Version: v})
		}
		for _, w := range writes {
			w.Name = of(w.Name)
			x.Write = append(x.Write, w)
		}
		got, err := s.Transact(ctx, x)
		if err != nil || got.Done != done || done && len(got.Versions) != len(writes) {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
		return got.Versions
	}
	put := func(n, v string) store.Write { return store.Write{Name: n, Value: []byte(v)} }
	del := func(n string) store.Write { return store.Write{Name: n, Delete: true} }
	has := func(what string, want map[string]string, at map[string]wire.Version) {
		t.Helper()
		for n, v := range want {
			got, err := s.Get(ctx, key(of(n)), false)
			if err != nil {
				t.Fatal(err)
			}
			is(t, what+": "+n, got, v, at[n])
		}
	}
	v := txn("new keys", true, map[string]wire.Version{"a": 0, "x": 0}, put("a", "1"), put("b", "1"), del("x"), put("c", "1"))
	if v[0] == 0 || v[1] != v[0] || v[2] != 0 || v[3] != v[0] {
		t.Errorf("versions %v", v)
	}
	at := map[string]wire.Version{"a": v[0], "b": v[0], "c": v[0]}
	has("made", map[string]string{"a": "1", "b": "1", "c": "1", "x": ""}, at)

	next := txn("there and new", true, map[string]wire.Version{"a": v[0], "b": v[0]}, put("a", "2"), del("b"), put("d", "2"), put("c", "2"))
	if next[0] <= v[0] || next[1] != next[0] || next[2] != next[0] || next[3] != next[0] {
		t.Errorf("versions %v after %v", next, v)
	}
	at = map[string]wire.Version{"a": next[0], "b": next[0], "c": next[0], "d": next[0]}
	state := map[string]string{"a": "2", "b": "", "c": "2", "d": "2", "new": ""}
	has("changed", state, at)
	for what, compare := range map[string]map[string]wire.Version{
		"an old version": {"a": v[0]}, "a version to come": {"a": next[0] + 1<<20}, "0 of a key that is there": {"a": 0},
		"0 of a deleted key": {"b": 0}, "another store's version": {"a": wire.MakeVersion(1, 1)},
		"a version of a key that never was": {"x": v[0]}, "one of three": {"a": next[0], "b": next[0], "c": v[0]},
	} {
		txn(what, false, compare, put("a", "no"), del("c"), put("new", "no"))
		txn(what, false, compare, put("d", "no"))
		txn(what, false, compare)
	}
	has("compared in vain", state, at)
	txn("only compared", true, map[string]wire.Version{"a": next[0], "b": next[0], "x": 0})

	last := txn("over a tombstone", true, map[string]wire.Version{"b": next[0]}, put("b", "last"), put("a", "last"), del("c"),
		del("d"))
	has("in the end", map[string]string{"a": "last", "b": "last", "c": "", "d": ""},
		map[string]wire.Version{"a": last[0], "b": last[0], "c": last[0], "d": last[0]})
	refused := nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "may make none")
	may := store.WithoutCreating(ctx, refused)
	x := store.Transaction{Namespace: ns, Write: []store.Write{put(of("a"), "last"), put(of("e"), "no")}}
	if _, err := s.Transact(may, x); !errors.Is(err, refused) {
		t.Errorf("who may make none: %v", err)
	}
	x.Write = x.Write[:1]
	if got, err := s.Transact(may, x); err != nil || !got.Done {
		t.Errorf("who may make none writes what is there: %+v, %v", got, err)
	}
}

// TestTransactQuota checks that the quota includes keys that transactions create, even
// concurrently. A refused transaction must not create any key.
func TestTransactQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	const quota, each, rounds = 8, 3, 10
	o := Options{Quota: func(string) int { return quota }}
	stores := []*Store{open(t, o, w.gateway())}
	for range 5 {
		stores = append(stores, open(t, o, w.Endpoints()...))
	}
	for round := range rounds {
		in := fmt.Sprint("round", round)
		var made, refused atomic.Int64
		var work sync.WaitGroup
		for who, s := range stores {
			work.Go(func() {
				x := store.Transaction{Namespace: in}
				for i := range each {
					x.Write = append(x.Write, store.Write{Name: fmt.Sprintf("%d/%d", who, i), Value: []byte("v")})
				}
				switch got, err := s.Transact(ctx, x); {
				case err == nil && got.Done:
					made.Add(1)
				case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}):
					refused.Add(1)
				default:
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		work.Wait()
		all, err := stores[0].List(ctx, in, "")
		if err != nil || made.Load() != quota/each || len(all) != quota/each*each || refused.Load() != 6-quota/each {
			t.Fatalf("%d keys, made by %d; %d were refused; %v", len(all), made.Load(), refused.Load(), err)
		}
		got, err := stores[0].Transact(ctx, store.Transaction{Namespace: in,
			Write: []store.Write{{Name: all[0].Name, Value: []byte("w")}}})
		if err != nil || !got.Done {
			t.Errorf("a key that is there, near the quota: %+v, %v", got, err)
		}
	}
}

// TestTransactLargest checks that etcd accepts the largest transaction of the node API. This must
// also hold through a gateway with all keys of the transaction placed.
func TestTransactLargest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, Options{}, w.gateway())
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	client := etcdtest.Client(t, w.Endpoints()...)
	var x store.Transaction
	x.Namespace = ns
	for i := range nodeapi.MaxTransact {
		name := fmt.Sprintf("k%02d", i)
		remove, err := w.place(ctx, client, nameOf(key(name)))
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
		value := bytes.Repeat([]byte("v"), nodeapi.MaxTransactBytes/nodeapi.MaxTransact-len(name))
		x.Write = append(x.Write, store.Write{Name: name, Value: value})
	}
	for _, what := range []string{"made", "overwritten"} {
		if got, err := s.Transact(ctx, x); err != nil || !got.Done {
			t.Fatalf("%s: %+v, %v", what, got, err)
		}
	}
	for i := range x.Write {
		x.Write[i].Delete = true
	}
	if got, err := s.Transact(ctx, x); err != nil || !got.Done {
		t.Fatalf("deleted: %+v, %v", got, err)
	}
	half := store.Transaction{Namespace: ns, Write: x.Write[:32]}
	for _, w := range x.Write[:32] {
		half.Compare = append(half.Compare, store.Comparison{Name: w.Name, Version: 1})
	}
	for i, w := range half.Write {
		got, err := s.Get(ctx, key(w.Name), false)
		if err != nil {
			t.Fatal(err)
		}
		half.Compare[i].Version, half.Write[i].Delete = got.Version, false
	}
	if got, err := s.Transact(ctx, half); err != nil || !got.Done {
		t.Fatalf("compared: %+v, %v", got, err)
	}
}

// accounts are the accounts in TestTransfers. The sum of their values must always be total.
var accounts = []string{"account/0", "account/1", "account/2", "account/3"}

const total = 1000

// TestTransfers runs eight programs that move money between two of four accounts, through two
// gateways. Meanwhile the accounts are placed in the network and removed from it, and etcd is
// killed. Every sum that is read atomically from etcd must be the same. Each transfer also writes a
// log key, which shows at the end whether a transfer with an unknown outcome was executed.
func TestTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var names []string
	var opening []coordination.Write
	for i, a := range accounts {
		names = append(names, nameOf(key(a)))
		opening = append(opening, coordination.Write{Name: a, Value: amount(i / 3 * total)})
	}
	w.placeAll(names...)
	o := Options{Patience: time.Second}
	stores := []*Store{open(t, o, w.gateway()), open(t, o, w.gateway())}
	var nodes []*coordination.Service
	for _, s := range stores {
		c := coordination.New(s, coordination.Options{Sweep: -1})
		t.Cleanup(func() { c.Close(context.Background()) })
		nodes = append(nodes, c)
	}
	if got, err := nodes[0].Transact(t.Context(), ns, nil, opening); err != nil || !got.Done {
		t.Fatal(got, err)
	}
	busy, stop := context.WithCancel(t.Context())
	defer stop()
	var done, lost, unknown, sums atomic.Int64
	var work sync.WaitGroup
	for who := range 8 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(who)))
			for n := 0; busy.Err() == nil; n++ {
				in, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				did, err := transfer(in, nodes[who%2], random, fmt.Sprintf("log/%d/%d", who, n))
				cancel()
				switch {
				case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}):
					unknown.Add(1)
				case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}),
					errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeTimeout}):
					time.Sleep(10 * time.Millisecond)
				case err != nil:
					t.Error(err)
					return
				case did:
					done.Add(1)
				default:
					lost.Add(1)
				}
			}
		})
	}
	past := open(t, o, w.Endpoints()...)
	work.Go(func() {
		for busy.Err() == nil && !t.Failed() {
			if checkSum(t, past) {
				sums.Add(1)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	more := func(what string) {
		t.Helper()
		before := done.Load()
		poll.Until(t, 2*soon, what, func() bool { return done.Load() >= before+60 || t.Failed() })
	}
	more("transfers before etcd is killed")
	w.Kill(0)
	w.Start(0)
	more("transfers when it is back")
	stop()
	work.Wait()
	if !checkSum(t, past) {
		t.Error("the sum cannot be read in the end")
	}
	logged, err := stores[0].List(t.Context(), ns, "log/")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d transfers, %d lost against others, %d of unknown outcome, %d logged; %d sums", done.Load(), lost.Load(),
		unknown.Load(), len(logged), sums.Load())
	if n := int64(len(logged)); n < done.Load() || n > done.Load()+unknown.Load() || sums.Load() == 0 {
		t.Errorf("%d transfers are logged", n)
	}
}

// checkSum reads the sum of the accounts and checks it. It returns false if etcd does not answer.
func checkSum(t *testing.T, s *Store) bool {
	page, err := s.Page(t.Context(), store.Range{Namespace: ns, Prefix: "account/", Most: len(accounts), Bytes: 1 << 20})
	if err != nil {
		return false
	}
	sum := 0
	for _, a := range page.Names {
		c, err := cell.Decode(a.Value)
		if err != nil {
			t.Error(err)
		}
		sum += number(c.Value)
	}
	if len(page.Names) != len(accounts) || sum != total {
		t.Errorf("%d accounts with %d of %d", len(page.Names), sum, total)
	}
	return true
}

func amount(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func number(value []byte) int {
	n, _ := strconv.Atoi(string(value))
	return n
}

// transfer moves an amount from one account to another, and writes a log entry. Its transaction
// compares versions or values. It reports whether the transfer was executed.
func transfer(ctx context.Context, c *coordination.Service, random *rand.Rand, log string) (bool, error) {
	compare := []coordination.Comparison{{Name: log, Absent: true}}
	writes := []coordination.Write{{Name: log, Value: []byte("done")}}
	var moved int
	for i, n := range random.Perm(len(accounts))[:2] {
		v, err := c.Get(ctx, key(accounts[n]), false)
		if err != nil {
			return false, err
		}
		balance := number(v.Item.Value)
		if i == 0 {
			moved = random.IntN(balance + 1)
			balance -= moved
		} else {
			balance += moved
		}
		condition := coordination.Comparison{Name: accounts[n], Version: &v.Version}
		if random.IntN(2) == 0 {
			value := string(v.Item.Value)
			condition = coordination.Comparison{Name: accounts[n], Value: &value}
		}
		compare = append(compare, condition)
		writes = append(writes, coordination.Write{Name: accounts[n], Value: amount(balance)})
	}
	got, err := c.Transact(ctx, ns, compare, writes)
	return err == nil && got.Done, err
}

// TestTransactIsWatched checks that a watch reports all writes of a transaction, with the version
// of the transaction.
func TestTransactIsWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, ctx := open(t, Options{}, w.gateway()), t.Context()
	if _, err := s.Put(ctx, key("w/gone"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	prefix := "w/"
	told := make(chan store.Change, 100)
	watching, leave := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(watching, store.Watch{Namespace: ns, Prefix: &prefix}, func(all []store.Change) {
			for _, c := range all {
				told <- c
			}
		})
	}()
	select {
	case <-told: // skip the report of the present state of the existing key
	case <-time.After(soon):
		t.Fatal("the watch does not begin")
	}
	got, err := s.Transact(ctx, store.Transaction{Namespace: ns, Write: []store.Write{{Name: "w/a", Value: []byte("1")},
		{Name: "w/b", Value: []byte("2")}, {Name: "w/gone", Delete: true}}})
	if err != nil || !got.Done {
		t.Fatal(got, err)
	}
	want := map[string]string{"w/a": "1", "w/b": "2", "w/gone": ""}
	for len(want) > 0 {
		select {
		case c := <-told:
			is(t, c.Key.Name, c.Item, want[c.Key.Name], got.Versions[0])
			delete(want, c.Key.Name)
		case <-time.After(soon):
			t.Fatalf("not told: %v", want)
		}
	}
	leave()
	<-ended
}

// TestTransactOfATroubledEtcd checks a transaction that deletes a key after etcd has forgotten the
// lease for tombstones. It must succeed. While etcd is unavailable, a transaction must fail with a
// code.
func TestTransactOfATroubledEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	relay := newRelay(t, w.Endpoints()[0])
	s, ctx := open(t, Options{Patience: 300 * time.Millisecond}, relay.url), t.Context()
	x := store.Transaction{Namespace: ns,
		Write: []store.Write{{Name: "a", Value: []byte("1")}, {Name: "b", Value: []byte("1")}}}
	if got, err := s.Transact(ctx, x); err != nil || !got.Done {
		t.Fatal(got, err)
	}
	if _, err := s.Delete(ctx, key("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := etcdtest.Client(t, w.Endpoints()...).Revoke(ctx, s.graves.id); err != nil {
		t.Fatal(err)
	}
	del := store.Transaction{Namespace: ns, Write: []store.Write{{Name: "a", Delete: true}}}
	if got, err := s.Transact(ctx, del); err != nil || !got.Done {
		t.Fatal(got, err)
	}
	relay.cut()
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := s.Transact(short, x)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) &&
		!errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}) {
		t.Errorf("while etcd is away: %v", err)
	}
	relay.mend()
	x.Write = append(x.Write, store.Write{Name: "long", Value: []byte(strings.Repeat("v", MaxValue+1))})
	_, err = s.Transact(ctx, x)
	hasCode(t, "a value that is too long", err, nodeapi.CodeTooLarge, "16384")
}

// TestTurnsOfNamespaces checks that each namespace has its own turn to create keys. So no namespace
// must wait for another namespace, for example while a member of etcd does not answer.
func TestTurnsOfNamespaces(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	t.Cleanup(func() { s.Close() })
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		done, err := s.makingTurn(ctx, fmt.Sprint("namespace", i))
		cancel()
		if err != nil {
			t.Fatalf("while %d other namespaces make keys: %v", i, err)
		}
		defer done()
	}
}
