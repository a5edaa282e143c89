package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/controlplane/admin/api"
)

const example = "../../topology/example.yaml"

func TestCommandLine(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("switches: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badState := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(badState, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args string
		code int
		want string // in stdout or stderr
	}{
		{"--help", 0, "Examples:"},
		{"", exitBadInput, "give the topology file"},
		{"--topology", exitBadInput, "flag needs an argument"},
		{"--speed 9", exitBadInput, "unknown flag"},
		{"net.yaml", exitBadInput, "unknown command"},
		{"--topology /nowhere.yaml", exitBadInput, "no such file"},
		{"--topology " + broken, exitBadInput, "broken.yaml:1: switches: there are no switches"},
		{"--topology " + example + " --log-level loud", exitBadInput, "give debug, info, warn or error"},
		{"--topology " + example + " --state " + badState, exitBadInput, "move it away to start without"},
		{"--topology " + example + " --prometheus http://127.0.0.1:9090", exitBadInput, "Give --etcd, too"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus ftp://x", exitBadInput, "is not the URL of a Prometheus"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --heat-window 1ms", exitBadInput, "it takes a second at least"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --placement-moves 0", exitBadInput, "0 moves a minute"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /g", exitBadInput, "must end in a slash"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /netcraq/keys/", exitBadInput, "the controllers' own state is under /netcraq/"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /netcraq/", exitBadInput, "the controllers' own state is under /netcraq/"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --check", 0, "all is well"},
		{"--topology " + example + " --check", 0, "4 switches, 4 hosts, 1 chains: all is well"},
		{"--topology " + example + " --admin " + taken.Addr().String(), exitFailed, "is another controller running?"},
	} {
		var out bytes.Buffer
		if code := run(strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: exit code %d and\n%s\nwant %d and %q", c.args, code, out.String(), c.code, c.want)
		}
	}
}

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *syncBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// TestSignal: it serves the API while the switches are not there yet, says what it waits for, and ends well.
func TestSignal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	var out syncBuffer
	code := make(chan int, 1)
	go func() { code <- run([]string{"--topology", example, "--admin", addr}, &out, &out) }()
	client := api.NewClient(addr)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := client.Ready(context.Background())
		if err != nil && strings.Contains(err.Error(), "waiting for s1, s2, s3, s4 to connect") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != exitOK || !strings.Contains(out.String(), "stopped: the switches run on") || !strings.Contains(out.String(), "within 200ms") {
			t.Errorf("exit code %d\n%s", c, out.String())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it did not end")
	}
}
