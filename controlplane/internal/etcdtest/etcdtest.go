// Package etcdtest starts an etcd server for tests.
package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/internal/testport"
)

// Start starts a server with nothing in it, which ends with the test, and gives its client address (HOST:PORT). Where etcd is not installed the test is skipped.
func Start(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("skipped: etcd is not on PATH (Debian's etcd-server)")
	}
	client, peer := testport.Free(t), testport.Free(t)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, "--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer, "--logger", "zap")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("etcd's log ends:\n%s", b[max(0, len(b)-2000):])
		}
	})
	c := Client(t, client)
	for end := time.Now().Add(20 * time.Second); ; {
		if _, err = c.Get(t.Context(), "x"); err == nil {
			return client
		}
		if time.Now().After(end) {
			t.Fatalf("etcd does not answer: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Client connects to a server.
func Client(t testing.TB, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(fmt.Errorf("etcd's client: %w", err))
	}
	t.Cleanup(func() { c.Close() })
	return c
}
