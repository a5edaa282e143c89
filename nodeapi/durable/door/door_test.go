package door

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/store"
)

const soon = 30 * time.Second

// enter returns a client of a node that uses the door. The client works until the end of the test.
func enter(t *testing.T, d *Door, name string) *clientv3.Client {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	c := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{"door"}, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			serving.Go(func() { d.Serve(ctx, name, there) })
			return here, nil
		})}})
	t.Cleanup(func() {
		c.Close()
		stop()
		serving.Wait()
	})
	return c
}

func newDoor(t *testing.T, o Options) (d *Door, etcd *clientv3.Client) {
	t.Helper()
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	o.Etcd = durable.Over(etcdtest.Client(t, cluster.Endpoints()...))
	return New(o), etcdtest.Client(t, cluster.Endpoints()...)
}

func newStore(t *testing.T, c *clientv3.Client, quota int) *durable.Store {
	t.Helper()
	s := durable.New(durable.Options{Etcd: durable.Over(c), Quota: func(string) int { return quota }})
	t.Cleanup(func() { s.Close() })
	return s
}

func key(name string) store.Key { return store.Key{Namespace: "ns", Name: name} }

// TestStore checks that a node's store works the same with a door as without a door.
func TestStore(t *testing.T) {
	t.Parallel()
	d, _ := newDoor(t, Options{})
	a, b := newStore(t, enter(t, d, "a"), 0), newStore(t, enter(t, d, "b"), 0)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var mu sync.Mutex
	told := map[string]store.Item{}
	watching, leave := context.WithCancel(ctx)
	ended := make(chan error, 2)
	prefix := ""
	for _, w := range []store.Watch{{Namespace: "ns", Prefix: &prefix}, {Namespace: "ns", Keys: []string{"k", "l"}}} {
		go func() {
			ended <- b.Watch(watching, w, func(changes []store.Change) {
				mu.Lock()
				defer mu.Unlock()
				for _, c := range changes {
					told[fmt.Sprint(w.Prefix != nil, c.Key.Name)] = c.Item
				}
			})
		}()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	v, err := a.Put(ctx, key("k"), []byte("1"))
	must(err)
	got, done, err := b.CompareAndSwap(ctx, key("k"), v, []byte("2"))
	must(err)
	if !done || got.Version <= v {
		t.Errorf("%+v", got)
	}
	got, done, err = a.CompareAndSwap(ctx, key("l"), 0, make([]byte, durable.MaxValue))
	must(err)
	if !done {
		t.Errorf("%+v", got)
	}
	all, err := b.List(ctx, "ns", "")
	must(err)
	if len(all) != 2 {
		t.Errorf("%v", all)
	}
	for i := range 100 { // create more keys than the door lets a node read in one request
		_, err := a.Put(ctx, key(fmt.Sprint("many", i)), []byte("v"))
		must(err)
	}
	page, err := b.Page(ctx, store.Range{Namespace: "ns", Prefix: "many", Most: 256, Bytes: 1 << 20})
	must(err)
	if len(page.Names) != 100 || page.More {
		t.Errorf("%d names", len(page.Names))
	}
	w, x := []byte("w"), store.Transaction{Namespace: "ns"}
	x.Compare = []store.Comparison{{Name: "many0", Version: page.Names[0].Version}, {Name: "none", Version: 0}}
	x.Write = []store.Write{{Name: "many0", Value: w}, {Name: "many1", Value: w}, {Name: "many2", Delete: true},
		{Name: "never", Delete: true}, {Name: "many100", Value: w}, {Name: "many101", Value: w}}
	txn, err := a.Transact(ctx, x)
	must(err)
	now, err := b.Get(ctx, key("many101"), false)
	if !txn.Done || err != nil || now.Version != txn.Versions[0] || string(now.Value) != "w" {
		t.Errorf("%+v, %+v, %v", txn, now, err)
	}
	txn, err = b.Transact(ctx, x)
	if must(err); txn.Done {
		t.Errorf("on an old version: %+v", txn)
	}
	gone, done, err := b.CompareAndDelete(ctx, key("l"), got.Version)
	must(err)
	if !done {
		t.Errorf("%+v", gone)
	}
	last, err := a.Delete(ctx, key("k"))
	must(err)
	if last <= gone.Version {
		t.Errorf("%v after %v", last, gone.Version)
	}
	poll.Until(t, soon, "it is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		is := func(name string, v wire.Version) bool { return told[name].Version == v && !told[name].Found }
		return is("truek", last) && is("truel", gone.Version) && is("falsek", last) && is("falsel", gone.Version)
	})
	made := make(chan map[string]bool, 10)
	following, stop := context.WithCancel(ctx)
	go b.FollowMade(following, func(m map[string]bool) { made <- m })
	if diff := cmp.Diff(map[string]bool{"ns": true}, <-made); diff != "" {
		t.Error(diff)
	}
	_, err = a.Put(ctx, store.Key{Namespace: "more", Name: "k"}, []byte("1"))
	must(err)
	if diff := cmp.Diff(map[string]bool{"ns": true, "more": true}, <-made); diff != "" {
		t.Error(diff)
	}
	stop()
	leave()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestKeys checks that a namespace never has more keys than the door's limit, whatever quota the
// nodes claim. All namespaces together must never exceed their limit, either.
func TestKeys(t *testing.T) {
	t.Parallel()
	const most = 15
	d, etcd := newDoor(t, Options{Keys: most, AllKeys: most + 3})
	stores := []*durable.Store{newStore(t, enter(t, d, "a"), 1000), newStore(t, enter(t, d, "b"), 1000)}
	var made atomic.Int64
	var work sync.WaitGroup
	make := func(ns string, i int) {
		work.Go(func() {
			name := fmt.Sprint("k", i)
			var err error
			if i%4 < 2 {
				_, err = stores[i%2].Put(t.Context(), store.Key{Namespace: ns, Name: name}, []byte("v"))
			} else {
				_, err = stores[i%2].Transact(t.Context(), store.Transaction{Namespace: ns,
					Write: []store.Write{{Name: name, Value: []byte("v")}}})
			}
			switch {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}),
				!strings.Contains(err.Error(), "that it may have"):
				t.Error(err)
			}
		})
	}
	tooMany := store.Transaction{Namespace: "ns"}
	for i := range most + 1 {
		tooMany.Write = append(tooMany.Write, store.Write{Name: fmt.Sprint("one too many", i), Value: []byte("v")})
	}
	_, err := stores[0].Transact(t.Context(), tooMany)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) {
		t.Errorf("a transaction that makes too many keys: %v", err)
	}
	for i := range 2 * most {
		make("ns", i)
	}
	work.Wait()
	if n := made.Swap(0); n != most {
		t.Errorf("%d keys were made", n)
	}
	// send the requests one after the other, because keys that are being created count, so
	// concurrent requests may be refused early
	for i := range 6 {
		make(fmt.Sprint("other", i), i)
		work.Wait()
	}
	if n := made.Load(); n != 3 {
		t.Errorf("%d keys were made in other namespaces", n)
	}
	all, err := etcd.Get(t.Context(), durable.KeysPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || all.Count != most+3 {
		t.Errorf("%d keys, %v", all.Count, err)
	}
	one, err := etcd.Get(t.Context(), durable.NamesOf("ns"), clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil {
		t.Fatal(err)
	}
	there := strings.TrimPrefix(string(one.Kvs[0].Key), durable.NamesOf("ns"))
	if _, err := stores[0].Put(t.Context(), key(there), []byte("w")); err != nil {
		t.Errorf("what is there is not written: %v", err)
	}
}

// TestKeysOfAForger checks a compromised node that creates many keys at once, in one namespace and
// in many namespaces. The transactions of the node do not contain a real count. They contain the
// node's guess of the revision when they will be executed. The node must not be able to create more
// keys than allowed.
func TestKeysOfAForger(t *testing.T) {
	t.Parallel()
	const most, all, each, bursts = 10, 15, 5, 40
	d, etcd := newDoor(t, Options{Keys: most})
	evil := pb.NewKVClient(enter(t, d, "evil").ActiveConnection())
	makes := func(ns string, who int, counted int64) *pb.TxnRequest {
		fence := durable.MadeName(ns)
		put := &pb.PutRequest{Key: []byte(fence)}
		r := &pb.TxnRequest{
			Compare: []*pb.Compare{(*pb.Compare)(new(clientv3.Compare(clientv3.ModRevision(fence), "=", counted)))},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}}}
		for i := range each {
			name := durable.NamesOf(ns) + fmt.Sprint(who, "-", i)
			r.Compare = append(r.Compare, (*pb.Compare)(new(clientv3.Compare(clientv3.CreateRevision(name), "=", 0))))
			put := &pb.PutRequest{Key: []byte(name), Value: []byte("v")}
			r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		return r
	}
	keys := func(prefix string) int64 {
		t.Helper()
		got, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return got.Count
	}
	for burst := range bursts {
		now, err := etcd.Get(t.Context(), durable.MadeName("ns"))
		if err != nil {
			t.Fatal(err)
		}
		next := now.Header.Revision
		var work sync.WaitGroup
		for who := range 8 {
			counted := int64(0)
			if len(now.Kvs) > 0 {
				counted = now.Kvs[0].ModRevision
			}
			if who > 0 { // the node guesses that the other transactions of this burst have already created their keys
				counted = next + int64(who)
			}
			work.Go(func() { _, _ = evil.Txn(t.Context(), makes("ns", burst*100+who, counted)) })
		}
		work.Wait()
		if n := keys(durable.NamesOf("ns")); n > most {
			t.Fatalf("after %d bursts the namespace has %d keys of %d that it may have", burst+1, n, most)
		}
		if _, err := etcd.Delete(t.Context(), durable.NamesOf("ns"), clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
	d = New(Options{Etcd: d.o.Etcd, Keys: most, AllKeys: all})
	evil = pb.NewKVClient(enter(t, d, "evil").ActiveConnection())
	var work sync.WaitGroup
	for who := range 20 {
		work.Go(func() { _, _ = evil.Txn(t.Context(), makes(fmt.Sprint("other", who), who, 0)) })
	}
	work.Wait()
	if n := keys(durable.KeysPrefix); n > all {
		t.Errorf("all namespaces have %d keys of %d that they may have", n, all)
	}
}

// TestRate checks that a node cannot write faster than its rate, even with many connections, and
// that other nodes can still write.
func TestRate(t *testing.T) {
	t.Parallel()
	d, _ := newDoor(t, Options{NodeRate: 4096}) // the burst is 16 times the rate, which is 64 KiB
	flood, friend := enter(t, d, "a"), newStore(t, enter(t, d, "b"), 0)
	again := enter(t, d, "a")
	refused := 0
	for i := range 40 {
		s := newStore(t, []*clientv3.Client{flood, again}[i%2], 0)
		if _, err := s.Put(t.Context(), key("big"), make([]byte, 8<<10)); err != nil {
			if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) ||
				!strings.Contains(err.Error(), "too many requests") {
				t.Errorf("%v", err)
			}
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("%d of 40 writes of 8 KiB were refused", refused)
	}
	if _, err := friend.Put(t.Context(), key("small"), []byte("v")); err != nil {
		t.Errorf("another node: %v", err)
	}
}

// TestAttacks checks a compromised node that sends arbitrary requests. It must be able to access
// only durable keys in etcd, and must not change anything else.
func TestAttacks(t *testing.T) {
	t.Parallel()
	d, etcd := newDoor(t, Options{})
	ctx := t.Context()
	for _, name := range []string{"/registry/secrets/a", "/netcraq/leader", "/netcraq.io", "/netcraq.io0", "a", "~"} {
		if _, err := etcd.Put(ctx, name, "secret"); err != nil {
			t.Fatal(err)
		}
	}
	c := enter(t, d, "evil")
	if _, err := newStore(t, c, 0).Put(ctx, key("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	contents := func() (out []string) {
		t.Helper()
		all, err := etcd.Get(ctx, "\x00", clientv3.WithFromKey())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range all.Kvs {
			out = append(out, fmt.Sprintf("%s=%s@%d", kv.Key, kv.Value, kv.ModRevision))
		}
		return out
	}
	before := contents()
	conn := c.ActiveConnection()
	kv, lease, cluster := pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewClusterClient(conn)
	maintenance, auth := pb.NewMaintenanceClient(conn), pb.NewAuthClient(conn)
	const k, made = "/netcraq.io/keys/ns/k", "/netcraq.io/made/ns"
	ranges := map[string]*pb.RangeRequest{
		"another key":             {Key: []byte("/registry/secrets/a")},
		"all keys":                {Key: []byte{0}, RangeEnd: []byte{0}},
		"from ours on":            {Key: []byte(k), RangeEnd: []byte{0}},
		"beyond ours":             {Key: []byte(k), RangeEnd: []byte("/netcraq.io00"), Limit: 1},
		"to a longer end":         {Key: []byte(k), RangeEnd: []byte("/netcraq.io0\x00"), Limit: 1},
		"the prefix less /":       {Key: []byte("/netcraq.io")},
		"an empty key":            {RangeEnd: []byte("/netcraq.io/z"), Limit: 1},
		"too many values":         {Key: []byte("/netcraq.io/"), RangeEnd: []byte("/netcraq.io0")},
		"values, limited to many": {Key: []byte("/netcraq.io/"), RangeEnd: []byte("/netcraq.io0"), Limit: 65},
		"too many names":          {Key: []byte("/netcraq.io/"), RangeEnd: []byte("/netcraq.io0"), KeysOnly: true},
		"a limit below 0":         {Key: []byte("/netcraq.io/"), RangeEnd: []byte("/netcraq.io0"), KeysOnly: true, Limit: -1},
		"another order": {Key: []byte("/netcraq.io/"), RangeEnd: []byte("/netcraq.io0"), KeysOnly: true, Limit: 1,
			SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE},
		"a filter":    {Key: []byte(k), MinModRevision: 1},
		"a long name": {Key: []byte(durable.Prefix + strings.Repeat("x", 400))},
	}
	put := func(name, value string, lease int64) *pb.RequestOp {
		p := &pb.PutRequest{Key: []byte(name), Value: []byte(value), Lease: lease}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	there := func(name string) *pb.Compare {
		return (*pb.Compare)(new(clientv3.Compare(clientv3.CreateRevision(name), ">", 0)))
	}
	not := func(name string) *pb.Compare {
		return (*pb.Compare)(new(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)))
	}
	counted := func(name string) *pb.Compare {
		return (*pb.Compare)(new(clientv3.Compare(clientv3.ModRevision(name), "=", 0)))
	}
	when := func(c ...*pb.Compare) []*pb.Compare { return c }
	then := func(o ...*pb.RequestOp) []*pb.RequestOp { return o }
	const secret, fence = "/registry/secrets/a", "/netcraq.io/made/b"
	long := strings.Repeat("x", durable.MaxValue+1)
	deletion := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(k)}}}
	within := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
		RequestTxn: &pb.TxnRequest{Success: then(put("a", "x", 0))}}}
	read := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: ranges["another key"]}}
	txns := map[string]*pb.TxnRequest{
		"a put of another key":   {Compare: when(there(secret)), Success: then(put(secret, "x", 0))},
		"a put of no condition":  {Success: then(put(k+"2", "x", 0))},
		"a put where it fails":   {Compare: when(there(k)), Failure: then(put(k, "x", 0))},
		"a condition on another": {Compare: when(there(secret))},
		"another key is there":   {Compare: when(there(k)), Success: then(put(k+"2", "x", 0))},
		"a key without the count": {Compare: when(not(k + "2")),
			Success: then(put(k+"2", "x", 0), put(made, "", 0))},
		"another's count": {Compare: when(not(k+"2"), counted(fence)),
			Success: then(put(k+"2", "x", 0), put(fence, "", 0))},
		"a count with a value": {Compare: when(not(k+"2"), counted(made)),
			Success: then(put(k+"2", "x", 0), put(made, "x", 0))},
		"a key that goes": {Compare: when(not(k+"2"), counted(made)),
			Success: then(put(k+"2", "x", 7), put(made, "", 0))},
		"one of two without a condition": {Compare: when(there(k)), Success: then(put(k, "x", 0), put(k+"2", "x", 0))},
		"one of two without the count": {Compare: when(there(k), not(k+"2")),
			Success: then(put(k, "x", 0), put(k+"2", "x", 0))},
		"a count without a key": {Compare: when(counted(made)), Success: then(put(made, "", 0))},
		"a count beside a key that is there": {Compare: when(there(k), counted(made)),
			Success: then(put(k, "x", 0), put(made, "", 0))},
		"two counts": {Compare: when(not(k+"2"), counted(made), counted(fence)),
			Success: then(put(k+"2", "x", 0), put(made, "", 0), put(fence, "", 0))},
		"keys of two namespaces": {Compare: when(not(k+"2"), not("/netcraq.io/keys/b/k"), counted(made)),
			Success: then(put(k+"2", "x", 0), put("/netcraq.io/keys/b/k", "x", 0), put(made, "", 0))},
		"another key beside one that is there": {Compare: when(there(k), there(secret)),
			Success: then(put(k, "x", 0), put(secret, "x", 0))},
		"too many at once": {Compare: slices.Repeat(when(there(k)), opsAtOnce+1), Success: then(put(k, "x", 0))},
		"what is no key":   {Compare: when(there("/netcraq.io/x")), Success: then(put("/netcraq.io/x", "x", 0))},
		"no namespace's": {Compare: when(there("/netcraq.io/keys/NS/k")),
			Success: then(put("/netcraq.io/keys/NS/k", "x", 0))},
		"a value too long":  {Compare: when(there(k)), Success: then(put(k, long, 0))},
		"a deletion":        {Success: then(deletion)},
		"one within one":    {Success: then(within)},
		"a read of another": {Success: then(read)},
		"none at all":       {Success: then(&pb.RequestOp{})},
	}
	denied := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node evil: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, r := range ranges {
		_, err := kv.Range(ctx, r)
		denied(what, err)
	}
	for what, r := range txns {
		_, err := kv.Txn(ctx, r)
		denied(what, err)
	}
	for what, do := range map[string]func() error{
		"put": func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(k)}); return err },
		"delete": func() error {
			_, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(k)})
			return err
		},
		"compact": func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 1}); return err },
		"revoke":  func() error { _, err := lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 1}); return err },
		"leases":  func() error { _, err := lease.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}); return err },
		"of a lease": func() error {
			_, err := lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1})
			return err
		},
		"a lease of its own number": func() error {
			_, err := lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 9, ID: 7})
			return err
		},
		"a lease for ever": func() error {
			_, err := lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1 << 40})
			return err
		},
		"members":  func() error { _, err := cluster.MemberList(ctx, &pb.MemberListRequest{}); return err },
		"an alarm": func() error { _, err := maintenance.Alarm(ctx, &pb.AlarmRequest{}); return err },
		"a snapshot": func() error {
			s, err := maintenance.Snapshot(ctx, &pb.SnapshotRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"keep alive": func() error {
			s, err := lease.LeaseKeepAlive(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"no authentication": func() error { _, err := auth.AuthDisable(ctx, &pb.AuthDisableRequest{}); return err },
		"a service that is none": func() error {
			return conn.Invoke(ctx, "/v3lockpb.Lock/Lock", &pb.RangeRequest{}, &pb.RangeResponse{})
		},
	} {
		denied(what, do())
	}
	for what, r := range map[string]*pb.WatchCreateRequest{"another key": {Key: []byte("/registry/secrets/a")},
		"all": {Key: []byte{0}, RangeEnd: []byte{0}}, "from ours on": {Key: []byte(k), RangeEnd: []byte{0}}} {
		s, err := pb.NewWatchClient(conn).Watch(ctx)
		if err == nil {
			err = s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		denied("a watch of "+what, err)
	}
	var many []pb.Watch_WatchClient
	for range watchStreams + 1 {
		s, err := pb.NewWatchClient(conn).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, s)
	}
	refused := make(chan error, len(many))
	for _, s := range many {
		go func() {
			_, err := s.Recv()
			refused <- err
		}()
	}
	denied("a stream too many", <-refused)
	_, err := kv.Range(ctx, &pb.RangeRequest{Key: make([]byte, messageBytes+1)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long message: %v", err)
	}
	if diff := cmp.Diff(before, contents()); diff != "" {
		t.Errorf("etcd was changed: %s", diff)
	}
}

// TestWatches checks that a stream has a maximum number of watches at a time, and that ended
// watches do not count.
func TestWatches(t *testing.T) {
	t.Parallel()
	const watches = 20
	d, _ := newDoor(t, Options{})
	d.watches = watches
	s, err := pb.NewWatchClient(enter(t, d, "evil").ActiveConnection()).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	create := func() {
		t.Helper()
		if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("/netcraq.io/keys/ns/k")}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range watches + 10 { // begin and end one watch after another
		create()
		made, err := s.Recv()
		if err != nil || !made.Created {
			t.Fatalf("%+v, %v", made, err)
		}
		if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: made.WatchId}}}); err != nil {
			t.Fatal(err)
		}
		if gone, err := s.Recv(); err != nil || !gone.Canceled {
			t.Fatalf("%+v, %v", gone, err)
		}
	}
	for range watches {
		create()
		if made, err := s.Recv(); err != nil || !made.Created {
			t.Fatalf("%+v, %v", made, err)
		}
	}
	create()
	_, err = s.Recv()
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "more than 20 watches") {
		t.Errorf("a watch too many: %v", err)
	}
}
