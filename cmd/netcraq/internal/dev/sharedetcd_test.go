package dev

import (
	"context"
	"net"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// uses tries to use an etcd. It expects an error that contains want, or success if want is "".
func uses(t *testing.T, endpoint, want string) *sharedEtcd {
	t.Helper()
	s, err := openSharedEtcd(t.Context(), leadership.Etcd{Endpoints: []string{endpoint}})
	switch {
	case err == nil && want != "":
		s.close()
		t.Errorf("%s is used; want %q", endpoint, want)
	case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v; want %q", endpoint, err, want)
	case err != nil && !strings.Contains(err.Error(), "--etcd "+endpoint):
		t.Errorf("the error does not name the flag: %v", err)
	}
	return s
}

// A server does not change an etcd that another NetCRAQ uses. It removes the state that a killed
// server has left.
func TestSharedEtcd(t *testing.T) {
	etcd := "http://" + etcdtest.Start(t)
	c := etcdtest.Client(t, etcd)
	for key, want := range map[string]string{
		"/netcraq/leader/694d": "another NetCRAQ uses it: there are 1 keys under /netcraq/",
		"/netcraq/keys/1":      "etcdctl del --prefix /netcraq/", "/netcraq/gateway/placed/x": "Pass another etcd"} {
		put(t, c, key)
		uses(t, etcd, want)
		if got, err := c.Get(t.Context(), key); err != nil || len(got.Kvs) != 1 {
			t.Errorf("%s is gone: %v, %v", key, got, err)
		}
		if _, err := c.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}

	put(t, c, "/netcraq-dev/keys/1")
	put(t, c, "/netcraq-device")
	first := uses(t, etcd, "")
	if first == nil {
		t.FailNow()
	}
	if got, err := c.Get(t.Context(), sharedPrefix, clientv3.WithPrefix()); err != nil || len(got.Kvs) > 0 {
		t.Errorf("what an earlier server left is there: %v, %v", got, err)
	}
	uses(t, etcd, `another netcraq dev uses it ("process `)
	put(t, c, "/netcraq-dev/keys/2")
	first.close()
	left, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil || len(left.Kvs) != 1 || string(left.Kvs[0].Key) != "/netcraq-device" {
		t.Errorf("after the end there is %v, %v", left, err)
	}
	if next := uses(t, etcd, ""); next != nil {
		next.close()
	}
	// Text from the etcd must not control the terminal.
	if _, err := c.Put(t.Context(), sharedOwner, "me\x1b[2J\n"); err != nil {
		t.Fatal(err)
	}
	uses(t, etcd, `another netcraq dev uses it ("me\x1b[2J\n"). Stop`)
}

func put(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, "x"); err != nil {
		t.Fatal(err)
	}
}

// Another NetCRAQ wins if it begins to use the etcd between the check and the reservation.
func TestSharedEtcdRace(t *testing.T) {
	etcd := "http://" + etcdtest.Start(t)
	c := etcdtest.Client(t, etcd)
	s := &sharedEtcd{client: etcdtest.Client(t, etcd)}
	if err := s.check(t.Context(), []string{etcd}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "/netcraq-dev/keys/1")
	put(t, c, "/netcraq/leader/1")
	if err := s.reserve(t.Context()); err == nil || !strings.Contains(err.Error(), "another NetCRAQ uses it") {
		t.Errorf("it says %v", err)
	}
	if got, err := c.Get(t.Context(), sharedReserved, clientv3.WithPrefix()); err != nil || len(got.Kvs) != 1 {
		t.Errorf("after a refusal there is %v, %v", got, err)
	}
}

// old is a fake server that reports a certain version of etcd.
type old struct {
	etcdserverpb.UnimplementedMaintenanceServer
	version string
}

func (o *old) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: o.version}, nil
}

func TestSharedEtcdVersion(t *testing.T) {
	for version, want := range map[string]string{"3.3.27": "is etcd 3.3.27, and netcraq dev needs 3.4 or later",
		"2.3.8": "Update it", "something": "so it is not an etcd"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		etcdserverpb.RegisterMaintenanceServer(s, &old{version: version})
		go func() { _ = s.Serve(l) }()
		uses(t, "http://"+l.Addr().String(), want)
		s.Stop()
	}
}

func TestSharedEtcdUnreachable(t *testing.T) {
	uses(t, "http://"+testport.Free(t), "it does not answer")
}

func TestSharedEtcdAuth(t *testing.T) {
	etcd := "http://" + etcdtest.Start(t)
	c := etcdtest.Client(t, etcd)
	for _, do := range []func() error{
		func() error { _, err := c.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := c.AuthEnable(t.Context()); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	uses(t, etcd, "its authentication is enabled")
}

// The server can use an etcd with TLS only with its CA and a client certificate.
func TestSharedEtcdTLS(t *testing.T) {
	certs, _ := testcerts.NewAuthority(t).Issue("etcd", "")
	etcd := "https://" + etcdtest.New(t, 1, etcdtest.Options{TLS: certs}).Endpoints()[0]
	etcd = strings.Replace(etcd, "https://https://", "https://", 1)
	uses(t, etcd, "does it need --etcd-cacert or --etcd-cert?")
	s, err := openSharedEtcd(t.Context(), leadership.Etcd{Endpoints: []string{etcd}, CA: certs.TrustedCAFile,
		Cert: certs.CertFile, Key: certs.KeyFile})
	if err != nil {
		t.Fatal(err)
	}
	s.close()
}
