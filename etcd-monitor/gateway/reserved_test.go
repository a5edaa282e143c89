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

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestReservedKeysAreHidden checks that clients cannot read the project's own keys through a
// gateway. It tries ranges, transactions, watches, snapshots, and their JSON forms.
func TestReservedKeysAreHidden(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateway()
	through, direct := etcdtest.Client(t, gateway), etcdtest.Client(t, w.cluster.Endpoints()...)
	name := seal.Prefix(placement.DefaultPrefix) + "keys"
	r, err := direct.Get(t.Context(), name)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	keys := r.Kvs[0].Value
	shows := func(b []byte) bool {
		return bytes.Contains(b, []byte("keyset")) ||
			bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(name))))
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
	if a, err := through.Txn(t.Context()).If(clientv3.Compare(clientv3.Value(name), ">", "a")).
		Commit(); status.Code(err) != codes.PermissionDenied {
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
		b, _ := io.ReadAll(a.Body) // a watch does not end until the client cancels it
		a.Body.Close()
		cancel()
		if len(b) == 0 || shows(b) {
			t.Errorf("%s: %d bytes, which show %s: %v", path, len(b), name, shows(b))
		}
	}

	// Watch all keys from the first revision on, including previous values.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := map[string]bool{}
	history := through.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithPrevKV())
	for i := range 3 {
		if _, err := direct.Put(t.Context(), name, string(keys)+strings.Repeat(" ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Put(t.Context(), "last", "of "+name); err != nil { // a reserved name in a value is not hidden
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
	// A watch of only reserved keys is refused, even if other watches are on the same stream.
	for _, only := range []clientv3.WatchChan{through.Watch(ctx, name, clientv3.WithRev(1)),
		through.Watch(ctx, ownPrefix, clientv3.WithPrefix()), through.Watch(ctx, "/netcraq/leader")} {
		if a, open := <-only; open && a.Err() == nil {
			t.Errorf("%v", a)
		}
	}
	if a, open := <-through.Watch(ctx, "last", clientv3.WithRev(1)); !open || len(a.Events) != 1 {
		t.Errorf("after those that were refused: %v", a)
	}
}

// TestDeleteEverything checks that a client that deletes everything deletes only clients' keys. The
// keys of the controllers and gateways must remain.
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
	for _, key := range []string{"/netcraq/leader/1", "/netcraq/chains/main", seal.Prefix(placement.DefaultPrefix) + "keys"} {
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

// TestReservedLeases checks that the leases of gateways and controllers are not listed. For a
// client that names them, they do not exist. Clients' own leases must work as usual.
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
	poll.Until(t, 10*time.Second, "the gateway has a session", func() bool {
		for _, id := range leases(direct) {
			if id != leader && id != mine && id != empty {
				session = id
			}
		}
		return session != 0
	})
	if _, err := through.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if got := leases(through); len(got) != 2 || !slices.Contains(got, mine) || !slices.Contains(got, empty) {
		t.Errorf("leases: %v; want %v and %v", got, mine, empty)
	}
	for _, id := range []clientv3.LeaseID{leader, session} {
		for _, options := range [][]clientv3.LeaseOption{nil, {clientv3.WithAttachedKeys()}} {
			if r, err := through.TimeToLive(ctx, id, options...); err != nil || r.TTL != -1 || r.ID != id ||
				len(r.Keys) > 0 || r.GrantedTTL != 0 || r.Revision == 0 {
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
	if r, err := through.TimeToLive(ctx, mine, clientv3.WithAttachedKeys()); err != nil || r.TTL <= 0 ||
		len(r.Keys) != 1 || string(r.Keys[0]) != "mine" {
		t.Errorf("%+v, %v", r, err)
	}
	// The same holds on one stream, in either order of the leases.
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
		if want := map[bool]int64{true: 60, false: 0}[id == mine]; r.ID != int64(id) || r.TTL != want ||
			r.Header.GetRevision() == 0 {
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

// TestReservedInNamespace checks that a key's name at etcd decides whether it is reserved. A
// reserved key stays reserved under the client's name for it. A client's key that only looks
// reserved is an ordinary key.
func TestReservedInNamespace(t *testing.T) {
	w := newWorld(t)
	direct := etcdtest.Client(t, w.cluster.Endpoints()...)
	for _, names := range []string{"/", "/net", "tenant"} {
		through := etcdtest.Client(t, w.gatewayOf(names, w.cluster.Endpoints()...))
		own, isReserved := strings.CutPrefix(ownPrefix+"x", names)
		if !isReserved {
			own = ownPrefix + "x"
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want := codes.OK
		if isReserved {
			want = codes.PermissionDenied
		}
		var all []clientv3.WatchChan // at etcd these watches become one
		for range 3 {
			all = append(all, through.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCreatedNotify(),
				clientv3.WithPrevKV()))
			if r := <-all[len(all)-1]; r.Err() != nil || !r.Created {
				t.Fatalf("%+v", r)
			}
		}
		if r := <-through.Watch(ctx, own, clientv3.WithCreatedNotify()); (r.Err() != nil) != isReserved {
			t.Errorf("%q: watching %s: %v", names, own, r.Err())
		}
		if _, err := direct.Put(ctx, ownPrefix+"x", "secret"); err != nil {
			t.Fatal(err)
		}
		if _, err := through.Put(ctx, own, "v"); status.Code(err) != want {
			t.Errorf("%q: writing %s: %v", names, own, err)
		}
		if _, err := through.Get(ctx, own); status.Code(err) != want {
			t.Errorf("%q: reading %s: %v", names, own, err)
		}
		if _, err := through.Put(ctx, "z", "v"); err != nil {
			t.Fatal(err)
		}
		expect := []string{own, "z"}
		if isReserved {
			expect = []string{"z"}
		}
		for i, ch := range all {
			var seen []string
			for timeout := time.After(10 * time.Second); len(seen) == 0 || seen[len(seen)-1] != "z"; {
				select {
				case r := <-ch:
					if r.Err() != nil {
						t.Fatal(r.Err())
					}
					for _, e := range r.Events {
						seen = append(seen, string(e.Kv.Key))
					}
				case <-timeout:
					t.Fatalf("%q: watch %d has only %q", names, i, seen)
				}
			}
			if !slices.Equal(seen, expect) {
				t.Errorf("%q: watch %d: %q, want %q", names, i, seen, expect)
			}
		}
		r, err := through.Get(ctx, "\x00", clientv3.WithFromKey())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range r.Kvs {
			got = append(got, string(kv.Key))
		}
		if slices.Contains(got, own) == isReserved || !slices.Contains(got, "z") {
			t.Errorf("%q: all keys are %q", names, got)
		}
		lease, err := through.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := through.Put(ctx, "z", "w", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		if l, err := through.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys()); err != nil ||
			len(l.Keys) != 1 || string(l.Keys[0]) != "z" {
			t.Errorf("%q: %+v, %v", names, l, err)
		}
		if _, err := through.Delete(ctx, "\x00", clientv3.WithFromKey()); err != nil {
			t.Error(err)
		}
		if a, err := direct.Get(ctx, ownPrefix+"x"); err != nil || len(a.Kvs) != 1 || string(a.Kvs[0].Value) != "secret" {
			t.Errorf("%q: %v, %v", names, a, err)
		}
	}
}

// TestWatchFilter checks the filter of watch answers. Refusals come in the order of the requests.
// Hidden events leave no trace. An answer in fragments has a proper end. The progress that a client
// requests for a watch is never too high. In a namespace, names are the clients' names.
func TestWatchFilter(t *testing.T) {
	for _, names := range []namespace{nil, namespace("ns/")} {
		own := string(names) + ownPrefix
		g := &Gateway{reserved: reserved.With(own), names: names, newest: new(Newest)}
		for _, c := range []struct {
			key, end string
			refused  bool
		}{{own + "x", "", true}, {own, clientv3.GetPrefixRangeEnd(own), true}, {own + "x", own + "y", true},
			{own, "\x00", false}, {"\x00", "\x00", false}, {"", "", false}, {"a", "", false}} {
			q := &pb.WatchCreateRequest{Key: []byte(c.key), RangeEnd: []byte(c.end)}
			if got := g.refuses(q); got != c.refused || got && string(q.Key) != string(q.RangeEnd) ||
				!got && (string(q.Key) != c.key || string(q.RangeEnd) != c.end) {
				t.Errorf("%q to %q: %v, and etcd is asked for %v", c.key, c.end, got, q)
			}
		}
		read := func(r *pb.WatchResponse) watchAnswer {
			t.Helper()
			r.Header = &pb.ResponseHeader{Revision: 100}
			b, err := r.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			a, ok, err := g.watchAnswer(frame{b})
			if !ok || err != nil {
				t.Fatalf("%v, %v", ok, err)
			}
			return a
		}
		message := func(a watchAnswer) *pb.WatchResponse {
			t.Helper()
			var out pb.WatchResponse
			if err := out.Unmarshal(a.bytes); err != nil {
				t.Fatal(err)
			}
			return &out
		}
		answer := func(w *watch, r *pb.WatchResponse) *pb.WatchResponse {
			t.Helper()
			a, shown := w.shows(read(r))
			if !shown {
				return nil
			}
			return message(a)
		}
		events := func(keys ...string) (all []*mvccpb.Event) {
			for i, k := range keys {
				all = append(all, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(string(names) + k),
					ModRevision: int64(10 + i)}})
			}
			return all
		}
		a, err := g.denied(read(&pb.WatchResponse{Created: true, Canceled: true, WatchId: noWatch, CancelReason: "mvcc: watcher range is empty"}))
		if err != nil {
			t.Fatal(err)
		}
		if r := message(a); !r.Created || !r.Canceled || r.WatchId != noWatch || !strings.Contains(r.CancelReason, "PermissionDenied") {
			t.Errorf("%v", r)
		}
		plain, fragments, progress := &watch{request: &pb.WatchCreateRequest{}},
			&watch{request: &pb.WatchCreateRequest{Fragment: true}},
			&watch{request: &pb.WatchCreateRequest{ProgressNotify: true}}
		for _, w := range []*watch{plain, fragments, progress} {
			if r := answer(w, &pb.WatchResponse{Events: events("a", ownPrefix+"a", "b")}); r == nil ||
				len(r.Events) != 2 || r.Header.Revision != 100 || string(r.Events[1].Kv.Key) != "b" {
				t.Errorf("%v", r)
			}
			if r := answer(w, &pb.WatchResponse{}); r == nil || r.Header.Revision != 100 { // a progress answer
				t.Errorf("%v", r)
			}
			if r := answer(w, &pb.WatchResponse{Canceled: true, CompactRevision: 5}); r == nil {
				t.Errorf("%v", r)
			}
		}
		for _, w := range []*watch{plain, fragments} {
			if r := answer(w, &pb.WatchResponse{Events: events(ownPrefix + "a")}); r != nil {
				t.Errorf("%v", r)
			}
		}
		if r := answer(progress, &pb.WatchResponse{Events: events(ownPrefix+"a", ownPrefix+"b")}); r == nil ||
			len(r.Events) != 0 || r.Header.Revision != 11 {
			t.Errorf("%v", r)
		}
		for i, step := range []struct {
			fragment bool
			key      string
			want     string
		}{
			{true, ownPrefix + "a", "nothing"}, {false, ownPrefix + "a", "nothing"},
			{true, "a", "fragment"}, {true, ownPrefix + "a", "nothing"}, {false, ownPrefix + "a", "end"},
			{true, ownPrefix + "a", "nothing"}, {true, "a", "fragment"}, {false, "b", "end"}, {false, ownPrefix + "a", "nothing"},
		} {
			r := answer(fragments, &pb.WatchResponse{Fragment: step.fragment, Events: events(step.key)})
			got := "nothing"
			if r != nil {
				got = map[bool]string{true: "fragment", false: "end"}[r.Fragment]
			}
			if got != step.want {
				t.Errorf("step %d: %s; want %s", i, got, step.want)
			}
		}
		// A client that already has a part of a shared watch's answer gets the remaining part,
		// without hidden events. The remaining part still covers all revisions of the answer.
		mixed := read(&pb.WatchResponse{Events: events("a", ownPrefix+"a", ownPrefix+"b")})
		for after, left := range map[int64]int{9: 1, 10: 0, 11: 0} {
			rest, err := mixed.after(after)
			if err != nil || rest.last != 12 || rest.first != after+1 || rest.emptied != (left == 0) ||
				len(message(rest).Events) != left {
				t.Errorf("after %d: %+v, %v", after, rest, err)
			}
			if _, shown := plain.shows(rest); shown != (left > 0) {
				t.Errorf("after %d: shown %v", after, shown)
			}
			if a, shown := progress.shows(rest); !shown || left == 0 && message(a).Header.Revision != 12 {
				t.Errorf("after %d: %v, %v", after, shown, message(a))
			}
		}
	}
}
