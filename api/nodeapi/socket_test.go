// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestFindSocket(t *testing.T) {
	run, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	env := map[string]string{"XDG_RUNTIME_DIR": run}
	want := func(socket string) {
		t.Helper()
		if got := FindSocket(func(name string) string { return env[name] }); got != socket {
			t.Errorf("found %s, want %s", got, socket)
		}
	}
	want(DefaultSocket)
	dev := filepath.Join(run, "netcraq.sock")
	if err := os.WriteFile(dev, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(DefaultSocket) // an ordinary file is not a server's socket
	_ = os.Remove(dev)
	listen(t, dev)
	want(dev)
	env[SocketVariable] = "tcp://h:1"
	want("tcp://h:1")

	clear(env)
	want(DefaultSocket)
	if err := os.Mkdir(DevFolder(), 0o700); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(DevFolder(), "netcraq.sock")
	listen(t, own)
	want(own)
	// with this mode, another user could have put the socket there
	if err := os.Chmod(DevFolder(), 0o777); err != nil {
		t.Fatal(err)
	}
	want(DefaultSocket)
}
