package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/seal"
)

// The project's own keys are not read through a gateway: by ranges, transactions, watches, snapshots, or the same as JSON.
func TestReservedKeysAreHidden(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateway()
	through, direct := etcdtest.Client(t, gateway), etcdtest.Client(t, w.cluster.Endpoints()...)
	name := seal.Prefix(placed.DefaultPrefix) + "keys"
	r, err := direct.Get(t.Context(), name)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	keys := r.Kvs[0].Value
	shows := func(b []byte) bool {
		return bytes.Contains(b, []byte("keyset")) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(name))))
	}

	if a, err := through.Get(t.Context(), name); status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := through.Put(t.Context(), "first", "v"); err != nil {
		t.Fatal(err)
	}
	all, err := through.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil || len(all.Kvs) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, kv := range all.Kvs {
		if strings.HasPrefix(string(kv.Key), ownPrefix) {
			t.Errorf("%s is read among all keys", kv.Key)
		}
	}
	if a, err := through.Txn(t.Context()).If(clientv3.Compare(clientv3.Value(name), ">", "a")).Commit(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v, %v", a, err)
	}
	for path, body := range map[string]string{
		"/v3/kv/range":             `{"key": "AA==", "range_end": "AA=="}`,
		"/v3/kv/txn":               `{"success": [{"request_range": {"key": "AA==", "range_end": "AA=="}}]}`,
		"/v3/maintenance/snapshot": `{}`,
		"/v3/watch":                `{"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": 1}}`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		b, _ := io.ReadAll(a.Body) // a watch goes on until it is cancelled
		a.Body.Close()
		cancel()
		if len(b) == 0 || shows(b) {
			t.Errorf("%s: %d bytes, which show %s: %v", path, len(b), name, shows(b))
		}
	}

	// From the first revision on, and what comes, with what was before.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := map[string]bool{}
	history := through.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithPrevKV())
	for i := range 3 {
		if _, err := direct.Put(t.Context(), name, string(keys)+strings.Repeat(" ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Put(t.Context(), "last", "of "+name); err != nil { // its name in a value is not hidden
		t.Fatal(err)
	}
	last := ""
	for last == "" {
		select {
		case a := <-history:
			if a.Err() != nil {
				t.Fatal(a.Err())
			}
			for _, e := range a.Events {
				seen[string(e.Kv.Key)] = true
				if string(e.Kv.Key) == "last" {
					last = string(e.Kv.Value)
				}
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the watch does not come to its end")
		}
	}
	if seen[name] || last != "of "+name || len(seen) < 2 {
		t.Errorf("seen: %v; the last one has %q", seen, last)
	}
	for key := range seen {
		if strings.HasPrefix(key, ownPrefix) {
			t.Errorf("a watch of all keys shows %s", key)
		}
	}
	// Of them alone there is no watch, whichever other watches are asked for on the same stream.
	for _, only := range []clientv3.WatchChan{through.Watch(ctx, name, clientv3.WithRev(1)), through.Watch(ctx, ownPrefix, clientv3.WithPrefix()), through.Watch(ctx, "/netcraq/leader")} {
		if a, open := <-only; open && a.Err() == nil {
			t.Errorf("%v", a)
		}
	}
	if a, open := <-through.Watch(ctx, "last", clientv3.WithRev(1)); !open || len(a.Events) != 1 {
		t.Errorf("after those that were refused: %v", a)
	}
}

// A client that deletes everything has deleted what is his, and nothing of the controllers' or the gateways'.
func TestDeleteEverything(t *testing.T) {
	w := newWorld(t)
	through, direct := etcdtest.Client(t, w.gateway()), etcdtest.Client(t, w.cluster.Endpoints()...)
	put := func(c *clientv3.Client, key string) {
		t.Helper()
		if _, err := c.Put(t.Context(), key, "v"); err != nil {
			t.Fatal(err)
		}
	}
	put(direct, "/netcraq/leader/1")
	put(direct, "/netcraq/chains/main")
	clients := []string{"/a", "/netcraq", "/netcraq0", "z"}
	for _, key := range clients {
		put(through, key)
	}
	r, err := through.Delete(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithPrevKV())
	if err != nil || r.Deleted != int64(len(clients)) || len(r.PrevKvs) != len(clients) {
		t.Fatalf("%v, %v; want %d deleted", r, err, len(clients))
	}
	for i, kv := range r.PrevKvs {
		if string(kv.Key) != clients[i] {
			t.Errorf("%s is deleted", kv.Key)
		}
	}
	for _, key := range []string{"/netcraq/leader/1", "/netcraq/chains/main", seal.Prefix(placed.DefaultPrefix) + "keys"} {
		if a, err := direct.Get(t.Context(), key); err != nil || len(a.Kvs) != 1 {
			t.Errorf("%s: %v, %v", key, a, err)
		}
		if _, err := through.Delete(t.Context(), key); status.Code(err) != codes.PermissionDenied {
			t.Errorf("deleting %s: %v", key, err)
		}
	}
	if a, err := through.Get(t.Context(), "\x00", clientv3.WithFromKey()); err != nil || a.Count != 0 {
		t.Errorf("%v, %v", a, err)
	}
}

// The leases of gateways and controllers are in no list, and there are none for who names them; those of clients are as ever.
func TestReservedLeases(t *testing.T) {
	w := newWorld(t)
	through, direct := etcdtest.Client(t, w.gateway()), etcdtest.Client(t, w.cluster.Endpoints()...)
	ctx := t.Context()
	leases := func(c *clientv3.Client) (ids []clientv3.LeaseID) {
		t.Helper()
		r, err := c.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Leases {
			ids = append(ids, l.ID)
		}
		return ids
	}
	grant := func(c *clientv3.Client, key string) clientv3.LeaseID {
		t.Helper()
		g, err := c.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			if _, err := c.Put(ctx, key, "v", clientv3.WithLease(g.ID)); err != nil {
				t.Fatal(err)
			}
		}
		return g.ID
	}
	leader := grant(direct, "/netcraq/leader/1")
	mine, empty := grant(through, "mine"), grant(through, "")
	var session clientv3.LeaseID
	for deadline := time.Now().Add(10 * time.Second); session == 0; {
		for _, id := range leases(direct) {
			if id != leader && id != mine && id != empty {
				session = id
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the gateway has no session")
		}
	}
	if _, err := through.Put(ctx, "k", "v"); err != nil { // with the session's key, which follows the lease
		t.Fatal(err)
	}
	if got := leases(through); len(got) != 2 || !slices.Contains(got, mine) || !slices.Contains(got, empty) {
		t.Errorf("leases: %v; want %v and %v", got, mine, empty)
	}
	for _, id := range []clientv3.LeaseID{leader, session} {
		for _, options := range [][]clientv3.LeaseOption{nil, {clientv3.WithAttachedKeys()}} {
			if r, err := through.TimeToLive(ctx, id, options...); err != nil || r.TTL != -1 || r.ID != id || len(r.Keys) > 0 || r.GrantedTTL != 0 || r.Revision == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if _, err := through.Revoke(ctx, id); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("revoking: %v", err)
		}
		if r, err := through.KeepAliveOnce(ctx, id); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("keeping alive: %v, %v", r, err)
		}
		if r, err := direct.TimeToLive(ctx, id); err != nil || r.TTL <= 0 {
			t.Errorf("at etcd: %v, %v", r, err)
		}
	}
	if r, err := through.TimeToLive(ctx, mine, clientv3.WithAttachedKeys()); err != nil || r.TTL <= 0 || len(r.Keys) != 1 || string(r.Keys[0]) != "mine" {
		t.Errorf("%+v, %v", r, err)
	}
	// On one stream, too, whichever comes first.
	stream, err := pb.NewLeaseClient(through.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []clientv3.LeaseID{session, mine, leader, mine, 12345} {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int64{true: 60, false: 0}[id == mine]; r.ID != int64(id) || r.TTL != want || r.Header.GetRevision() == 0 {
			t.Errorf("%x: %v; want a time to live of %d", id, r, want)
		}
	}
	alive, err := through.KeepAlive(ctx, mine)
	if err != nil {
		t.Fatal(err)
	}
	if r := <-alive; r == nil || r.ID != mine || r.TTL != 60 {
		t.Errorf("%+v", r)
	}
	for _, id := range []clientv3.LeaseID{mine, empty} {
		if _, err := through.Revoke(ctx, id); err != nil {
			t.Error(err)
		}
	}
}

// One stream's messages: what is refused is refused in its turn, what is left out leaves no trace, an answer in fragments ends, and who wants to know how far a watch is, hears no more than is so.
func TestWatchFilter(t *testing.T) {
	f := newWatchFilter(reserved.With(ownPrefix))
	create := func(key, end string, change func(*pb.WatchCreateRequest)) *pb.WatchCreateRequest {
		t.Helper()
		c := &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)}
		if change != nil {
			change(c)
		}
		b, err := (&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var q pb.WatchRequest
		if err := q.Unmarshal(f.request(b)); err != nil {
			t.Fatal(err)
		}
		return q.GetCreateRequest()
	}
	answer := func(r *pb.WatchResponse) *pb.WatchResponse {
		t.Helper()
		r.Header = &pb.ResponseHeader{Revision: 100}
		b, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if b, err = f.answer(b); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return nil
		}
		var out pb.WatchResponse
		if err := out.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	events := func(keys ...string) (all []*mvccpb.Event) {
		for i, k := range keys {
			all = append(all, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(k), ModRevision: int64(10 + i)}})
		}
		return all
	}
	create("\x00", "\x00", nil)
	if c := create(ownPrefix+"x", "", nil); string(c.RangeEnd) != string(c.Key) {
		t.Errorf("asked of etcd: %v", c)
	}
	create("\x00", "\x00", func(c *pb.WatchCreateRequest) { c.Fragment = true })
	create("\x00", "\x00", func(c *pb.WatchCreateRequest) { c.ProgressNotify = true })
	create("", "", nil)
	if r := answer(&pb.WatchResponse{Created: true, WatchId: 0}); r == nil || r.Canceled {
		t.Errorf("%v", r)
	}
	if r := answer(&pb.WatchResponse{WatchId: 0, Events: events(ownPrefix + "a")}); r != nil {
		t.Errorf("%v", r)
	}
	if r := answer(&pb.WatchResponse{Created: true, Canceled: true, WatchId: -1, CancelReason: "mvcc: watcher range is empty"}); r == nil || !r.Canceled || !strings.Contains(r.CancelReason, "PermissionDenied") {
		t.Errorf("%v", r)
	}
	for id := range int64(3) {
		if r := answer(&pb.WatchResponse{Created: true, WatchId: id + 1}); r == nil || r.Canceled {
			t.Errorf("%v", r)
		}
	}
	for id := range int64(4) {
		if r := answer(&pb.WatchResponse{WatchId: id, Events: events("a", ownPrefix+"a", "b")}); r == nil || len(r.Events) != 2 || r.Header.Revision != 100 {
			t.Errorf("%v", r)
		}
		if r := answer(&pb.WatchResponse{WatchId: id}); r == nil || r.Header.Revision != 100 { // etcd says how far it is
			t.Errorf("%v", r)
		}
		if r := answer(&pb.WatchResponse{WatchId: id, Canceled: true, CompactRevision: 5}); r == nil {
			t.Errorf("%v", r)
		}
	}
	create("\x00", "\x00", func(c *pb.WatchCreateRequest) { c.Fragment = true })
	create("\x00", "\x00", func(c *pb.WatchCreateRequest) { c.ProgressNotify = true })
	answer(&pb.WatchResponse{Created: true, WatchId: 7})
	answer(&pb.WatchResponse{Created: true, WatchId: 8})
	for i, step := range []struct {
		fragment bool
		key      string
		want     string
	}{
		{true, ownPrefix + "a", "nothing"}, {false, ownPrefix + "a", "nothing"},
		{true, "a", "fragment"}, {true, ownPrefix + "a", "nothing"}, {false, ownPrefix + "a", "end"},
		{true, ownPrefix + "a", "nothing"}, {true, "a", "fragment"}, {false, "b", "end"}, {false, ownPrefix + "a", "nothing"},
	} {
		r := answer(&pb.WatchResponse{WatchId: 7, Fragment: step.fragment, Events: events(step.key)})
		got := "nothing"
		if r != nil {
			got = map[bool]string{true: "fragment", false: "end"}[r.Fragment]
		}
		if got != step.want {
			t.Errorf("step %d: %s; want %s", i, got, step.want)
		}
	}
	if r := answer(&pb.WatchResponse{WatchId: 8, Events: events(ownPrefix+"a", ownPrefix+"b")}); r == nil || len(r.Events) != 0 || r.Header.Revision != 11 {
		t.Errorf("%v", r)
	}
}
