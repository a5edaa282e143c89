package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// TestCommandLine checks that errors in the command line and in the policy are reported before
// anything is opened.
func TestCommandLine(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(broken, []byte("rules: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	durable := filepath.Join(t.TempDir(), "durable.yaml")
	if err := os.WriteFile(durable, []byte("namespaces: {shop: {durable: true}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string // text that stdout or stderr must contain
	}{
		{"--help", exitOK, "--take-over"},
		{"--speed 9", exitBadInput, "unknown flag"},
		{"here", exitBadInput, "unknown command"},
		{"--log-level loud", exitBadInput, "give debug, info, warn or error"},
		{"--socket-mode 999", exitBadInput, "want octal permissions"},
		{"--socket-mode 1777", exitBadInput, "want octal permissions"},
		{"--socket-group nosuchgroup_", exitBadInput, "there is no such group"},
		{"--policy /nowhere.yaml", exitBadInput, "no such file"},
		{"--policy " + broken, exitBadInput, "field rules not found"},
		{"--policy " + durable, exitBadInput, "give --endpoints"},
		{"--cacert x", exitBadInput, "are for --endpoints"},
		{"--endpoints https://127.0.0.1:1 --cacert /nowhere.pem", exitBadInput, "no such file"},
		{"--endpoints http://127.0.0.1:1 --cacert /nowhere.pem", exitBadInput, "is without TLS"},
		{"--endpoints http://127.0.0.1:1,https://127.0.0.1:2", exitBadInput, "or none does"},
		{"--endpoints 127.0.0.1:1 --cert x", exitBadInput, "give a certificate and its key"},
		{"--endpoints 127.0.0.1:1 --user x", exitBadInput, "pass a user and the file"},
		{"--streams-etcd /nowhere.yaml", exitBadInput, "no such file"},
		{"--streams-etcd " + broken, exitBadInput, "field rules not found"},
		{"--metrics 127.0.0.1:-1", exitFailed, "--metrics"},
		{"--push=perhaps", exitBadInput, "invalid argument"},
		{"--listen x", exitBadInput, "want unix:///PATH or tcp://HOST:PORT"},
		{"--listen tcp://0.0.0.0", exitBadInput, "missing port"},
	} {
		var out bytes.Buffer
		code := Run("netcraq-sidecar", strings.Fields(c.args), &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: exit code %d and\n%s\nwant %d and %q", c.args, code, out.String(), c.code, c.want)
		}
	}
}

// TestWithoutController checks that streams work before a controller has answered. Calls for keys
// must fail with a clear error.
func TestWithoutController(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.sock")
	var said syncbuffer.Buffer
	o := options{name: "netcraq-sidecar", listen: []string{"unix://" + path}, mode: "600", namespace: "shop", node: "n",
		admin: "unix://" + filepath.Join(t.TempDir(), "none.sock"), token: filepath.Join(t.TempDir(), "token"),
		push: true, memory: 16, logLevel: "info"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, o, &said, &said) }()
	poll.Until(t, 20*time.Second, "it serves", func() bool { return strings.Contains(said.String(), "ready:") }, said.String)
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	answers := bufio.NewReader(nc)
	for _, c := range [][2]string{
		{`{"id":1,"func":"openStream","data":{"stream":"orders","config":{"objects":16}}}`, `"data"`},
		{`{"id":2,"func":"append","data":{"stream":"orders","records":[{"value":"a"}]}}`, `"offset":0`},
		{`{"id":3,"func":"get","data":{"key":"k"},"timeoutMs":400}`, `"code":"unavailable"`},
	} {
		if _, err := fmt.Fprintln(nc, c[0]); err != nil {
			t.Fatal(err)
		}
		if text, err := answers.ReadString('\n'); err != nil || !strings.Contains(text, c[1]) {
			t.Errorf("%s: %s, %v; want %s", c[0], text, err, c[1])
		}
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, said.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
}

// TestAlive checks that only a socket with a listener counts as alive.
func TestAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if alive(path) {
		t.Error("there is nothing")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if !alive(path) {
		t.Error("somebody listens")
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if alive(path) {
		t.Error("whoever listened is dead")
	}
}
