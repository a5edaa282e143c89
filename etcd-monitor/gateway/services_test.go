package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// TestServices checks etcd's lock and election services. They must work whether the gateway
// forwards or serves them, and with authentication. The gateway acts as the client's user.
func TestServices(t *testing.T) {
	for way, served := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.New(t, 1, etcdtest.Options{})
			g := beginWay(t, served, c.Endpoints()...)
			plain := etcdtest.Client(t, g.Endpoint)
			lockAndElect(t, plain, g.Gateway, false)
			for _, step := range []func() error{
				func() error { _, err := plain.UserAdd(t.Context(), "root", "pw"); return err },
				func() error { _, err := plain.UserGrantRole(t.Context(), "root", "root"); return err },
				func() error { _, err := plain.AuthEnable(t.Context()); return err },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			lease, err := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{g.Endpoint},
				Username: "root", Password: "pw"}).Grant(t.Context(), 60)
			if err != nil {
				t.Fatal(err)
			}
			_, err = v3lockpb.NewLockClient(plain.ActiveConnection()).Lock(t.Context(),
				&v3lockpb.LockRequest{Name: []byte("mutex"), Lease: int64(lease.ID)})
			if err == nil {
				t.Error("nobody has got the lock")
			}
			lockAndElect(t, etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{g.Endpoint},
				Username: "root", Password: "pw"}), g.Gateway, true)
		})
	}
}

// lockAndElect uses the lock and the election service. If last is set, it shuts the gateway down
// while a client observes an election.
func lockAndElect(t *testing.T, client *clientv3.Client, g *Gateway, last bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	locks, elections := v3lockpb.NewLockClient(client.ActiveConnection()), v3electionpb.NewElectionClient(
		client.ActiveConnection())
	lock, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("mutex"), Lease: int64(lease.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := client.Get(ctx, string(lock.Key)); err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease != int64(lease.ID) {
		t.Errorf("the lock's key: %v, %v", r, err)
	}
	if _, err := locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: lock.Key}); err != nil {
		t.Error(err)
	}
	campaign, err := elections.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("election"),
		Lease: int64(lease.ID), Value: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	observe := func() v3electionpb.Election_ObserveClient {
		t.Helper()
		observer, err := elections.Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("election")})
		if err != nil {
			t.Fatal(err)
		}
		return observer
	}
	observer := observe()
	observed := func(want string) {
		t.Helper()
		for seen := ""; seen != want; {
			r, err := observer.Recv()
			// etcd itself may end the watch of an earlier observer, because authentication was
			// enabled
			if errors.Is(err, io.EOF) && ctx.Err() == nil {
				observer = observe()
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			seen = string(r.Kv.Value)
		}
	}
	observed("one")
	if _, err := elections.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: campaign.Leader,
		Value: []byte("two")}); err != nil {
		t.Fatal(err)
	}
	observed("two")
	if _, err := elections.Resign(ctx, &v3electionpb.ResignRequest{Leader: campaign.Leader}); err != nil {
		t.Error(err)
	}
	if !last {
		return
	}
	down, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	began := time.Now()
	g.Shutdown(down)
	if _, err := observer.Recv(); status.Code(err) != codes.Unavailable || time.Since(began) > 4*time.Second {
		t.Errorf("the observer of a gateway that is shut down: %v after %v", err, time.Since(began))
	}
}

// TestAuthEnable checks that requests to enable etcd's authentication go through AuthEnable. It
// makes a gRPC request and a JSON request. The answer must be etcd's.
func TestAuthEnable(t *testing.T) {
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	asked := 0
	g := begin(t, Config{AuthEnable: func(_ context.Context, pass func() error) error {
		asked++
		return pass()
	}}, cluster.Endpoints()...)
	c := etcdtest.Client(t, g.Endpoint)
	if _, err := c.AuthEnable(t.Context()); !errors.Is(err, rpctypes.ErrRootUserNotExist) {
		t.Error(err)
	}
	r, err := http.Post(g.Endpoint+"/v3/auth/enable", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if _, err := c.AuthStatus(t.Context()); err != nil {
		t.Error(err)
	}
	if r.StatusCode == http.StatusOK || asked != 2 {
		t.Errorf("HTTP status %d; it was passed on %d times", r.StatusCode, asked)
	}
}
