package embedded

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func begin(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.LogOutput = filepath.Join(t.TempDir(), "log")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func connect(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRestart checks that acknowledged writes survive a restart, even if the ports change.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := begin(t, Config{DataDir: dir})
	if _, err := connect(t, s).Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = begin(t, Config{DataDir: dir})
	r, err := connect(t, s).Get(t.Context(), "k")
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" || r.Header.Revision != 2 {
		t.Fatalf("after a restart: %v, %v; want v at revision 2", r, err)
	}
	m, err := connect(t, s).MemberList(t.Context())
	if err != nil || len(m.Members) != 1 || len(m.Members[0].ClientURLs) != 1 ||
		m.Members[0].ClientURLs[0] != s.Endpoint() {
		t.Fatalf("member list %v, %v; want %s", m, err, s.Endpoint())
	}
}

func TestAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().String()
	for address, want := range map[string]string{
		"0.0.0.0:2379":  "not on this machine's loopback",
		"10.0.0.1:2379": "not on this machine's loopback",
		"2379":          "not HOST:PORT",
		taken:           "address already in use",
	} {
		s, err := Start(t.Context(), Config{DataDir: t.TempDir(), Client: address, LogOutput: filepath.Join(
			t.TempDir(), "log")})
		if err == nil {
			s.Close()
			t.Errorf("%s: started; want %q", address, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", address, err, want)
		}
	}
	l.Close()
	if s := begin(t, Config{DataDir: t.TempDir(), Client: taken}); s.Endpoint() != "http://"+taken {
		t.Errorf("listens at %s, want %s", s.Endpoint(), taken)
	}
}

// TestDirectoryInUse checks that a second server on the same directory is refused.
func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	begin(t, Config{DataDir: dir})
	if s, err := Start(t.Context(), Config{DataDir: dir}); err == nil {
		s.Close()
		t.Fatal("a second server started on the same directory")
	} else if !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if s, err := Start(ctx, Config{DataDir: dir, LogOutput: filepath.Join(t.TempDir(), "log")}); err == nil {
		s.Close()
		t.Skip("skipped: it was ready before it looked")
	}
	begin(t, Config{DataDir: dir}) // the refused server has released the directory
}
