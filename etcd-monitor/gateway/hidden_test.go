package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/seal"
)

// The keys that cells are sealed with are not read through a gateway: by ranges, transactions, watches, snapshots, or the same as JSON.
func TestSealedKeysAreHidden(t *testing.T) {
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
	all, err := through.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil || len(all.Kvs) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, kv := range all.Kvs {
		if string(kv.Key) == name {
			t.Errorf("%s is read among all keys", name)
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
	only := through.Watch(ctx, name, clientv3.WithRev(1), clientv3.WithPrevKV())
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
	for done := false; !done; {
		select {
		case a := <-only:
			if len(a.Events) > 0 {
				t.Errorf("a watch of it alone shows %v", a.Events)
			}
		case <-time.After(200 * time.Millisecond):
			done = true
		}
	}
}
