package gateway

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/etcdversion"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestEarlyProgress uses an etcd that may announce progress before it has sent earlier events. No
// watcher may lose an event. The gateway makes no progress requests of its own to such an etcd, and
// draws no conclusions from its answers to clients. Watches are still shared after their first
// event.
func TestEarlyProgress(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.4.23", "3.5.7", "of its own"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			early := etcdtest.NewEarlyProgress(version)
			c := etcdtest.New(t, 1, etcdtest.Options{Adjust: early.Adjust})
			direct := etcdtest.Client(t, c.Endpoints()...)
			var log syncbuffer.Buffer
			g := begin(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, c.Endpoints()...)
			first := mustPut(t, direct, "k")
			early.Revision.Store(mustPut(t, direct, "other"))
			now := watchMany(t, g.Endpoint, 2, 1, 1, "k")
			past := etcdtest.Client(t, g.Endpoint)
			like := metadata.AppendToOutgoingContext(t.Context(), "stream", "0") // metadata of watchMany's first stream
			seen := past.Watch(like, "k", clientv3.WithRev(first), clientv3.WithCreatedNotify())
			<-seen
			if err := past.RequestProgress(like); err != nil { // etcd answers this request too early
				t.Fatal(err)
			}
			if r := <-seen; !r.IsProgressNotify() {
				t.Fatalf("etcd's answer to a client's question: %+v", r)
			}
			time.Sleep(5 * nudgeFirst) // enough time for the gateway to query progress
			if n := early.Requests.Load(); n != 1 {
				t.Errorf("etcd was asked for progress %d times; the client asked once", n)
			}
			close(early.Release)
			select {
			case r := <-seen:
				if len(r.Events) != 1 || r.Events[0].Kv.ModRevision != first {
					t.Errorf("the watcher has %+v", r)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the watcher lost the event of before the progress")
			}
			mustPut(t, direct, "k")
			for _, ch := range append(now, seen) {
				if r := <-ch; len(r.Events) != 1 {
					t.Errorf("a watcher has %+v", r)
				}
			}
			eventually(t, "the watches are shared", func() bool { etcd, clients := g.hub.count(); return etcd == 1 && clients == 3 })
			eventually(t, "the log says which etcd is needed", func() bool {
				return strings.Contains(log.String(), etcdversion.ProgressSince)
			})
		})
	}
}

func mustPut(t testing.TB, c *clientv3.Client, key string) (revision int64) {
	t.Helper()
	r, err := c.Put(t.Context(), key, "v")
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// TestInstalledEtcd uses the etcd on PATH, which packages.txt installs and which may be old.
// Watches that start now or in the past must be shared, and get each event.
func TestInstalledEtcd(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("skipped: there is no etcd on PATH (make deps installs it)")
	}
	client, peer := "http://"+testport.Free(t), "http://"+testport.Free(t)
	etcd := exec.Command(path, "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Process.Kill(); etcd.Wait() })
	direct := etcdtest.Client(t, client)
	first := mustPut(t, direct, "k")
	mustPut(t, direct, "other")
	var log syncbuffer.Buffer
	g := begin(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, client)
	go g.Reach() // Reach warns of an old version
	all := watchMany(t, g.Endpoint, 3, 1, 2, "k", clientv3.WithRev(first))
	last := mustPut(t, direct, "k")
	for i, ch := range all {
		for at := int64(0); at < last; {
			r := <-ch
			if r.Err() != nil {
				t.Fatalf("watch %d: %v", i, r.Err())
			}
			for _, e := range r.Events {
				if want := map[int64]int64{0: first, first: last}[at]; e.Kv.ModRevision != want {
					t.Fatalf("watch %d has the event of revision %d, want %d", i, e.Kv.ModRevision, want)
				}
				at = e.Kv.ModRevision
			}
		}
	}
	eventually(t, "the watches are shared", func() bool { etcd, clients := g.hub.count(); return etcd == 1 && clients == 6 })
	s, err := direct.Status(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says whether etcd "+s.Version+" is too old", func() bool {
		return strings.Contains(log.String(), s.Version) != etcdversion.OrdersProgress(s.Version)
	})
}
