package inprocess

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestSidecar checks that the sidecar command serves the node API with keys in the chains. Another
// instance replaces it while programs make calls. No call may fail, and the old instance must end
// when it is told to. A program that watches keys must continue. The switch must notify both
// instances.
func TestSidecar(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "netcraq-sidecar")
	if out, err := exec.Command("go", "build", "-o", binary, "../../../nodeapi/cmd/netcraq-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	way, url := newRelay(x, 1)
	way.ask(r.URL)
	path := filepath.Join(t.TempDir(), "node.sock")
	metrics := testport.Free(t)
	sidecar := func(more ...string) (*exec.Cmd, *syncbuffer.Buffer, chan error) {
		t.Helper()
		out := new(syncbuffer.Buffer)
		c := exec.Command(binary, append([]string{"--listen", "unix://" + path, "--admin", url, "--token-file", "", "--node", "h1",
			"--namespace", shop}, more...)...)
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		t.Cleanup(func() { _ = c.Process.Kill() })
		poll.Until(t, 30*time.Second, "it serves", func() bool { return strings.Contains(out.String(), "ready:") }, out.String)
		return c, out, ended
	}
	_, firstSaid, firstEnded := sidecar("--metrics", metrics)

	var stop atomic.Bool
	var calls, told atomic.Int64
	var programs sync.WaitGroup
	for n := range 3 {
		programs.Go(func() {
			for !stop.Load() {
				if err := program(path, n, &stop, &calls); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	leave, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	programs.Go(func() {
		for leave.Err() == nil {
			if err := watching(leave, path, &told); err != nil && leave.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	more := func(what string) {
		t.Helper()
		before := calls.Load()
		poll.Until(t, 30*time.Second, what, func() bool { return calls.Load() > before+20 || t.Failed() })
	}
	more("calls by the first")
	counts := func(want string) error {
		answer, err := http.Get("http://" + metrics + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || !bytes.Contains(text, []byte(want)) {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	}
	served := func(who string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, who+" counts", func() error { return counts("netcraq_nodeapi_connections 4\n") })
		poll.Nil(t, 30*time.Second, "the switch tells "+who, func() error { return counts("netcraq_nodeapi_notified_keys 1\n") })
		before := told.Load()
		poll.Until(t, 30*time.Second, "who watches at "+who+" is told", func() bool { return told.Load() > before+20 })
	}
	served("the first")
	second, secondSaid, secondEnded := sidecar("--take-over", "--metrics", metrics)
	select {
	case err := <-firstEnded:
		if err != nil {
			t.Errorf("%v: %s", err, firstSaid)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the first does not end: %s", firstSaid)
	}
	more("calls by the second")
	served("the second")
	stop.Store(true)
	stopWatching()
	programs.Wait()
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-secondEnded:
		if err != nil {
			t.Errorf("%v: %s", err, secondSaid)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the second does not end: %s", secondSaid)
	}
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		t.Error("somebody listens")
	}
}

// program makes calls over one connection until the server asks it to reconnect. Each of its
// increments is executed once.
func program(path string, n int, stop *atomic.Bool, calls *atomic.Int64) error {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	answers := bufio.NewReader(nc)
	if _, err := fmt.Fprintln(nc, `{"id":1,"func":"hello","data":{"drainNotice":true}}`); err != nil {
		return err
	}
	text, err := answers.ReadString('\n')
	for leave := strings.Contains(text, `"draining":true`); err == nil && !leave && !stop.Load(); {
		if _, err = fmt.Fprintf(nc, `{"id":2,"func":"increment","data":{"key":"n%d"}}`+"\n", n); err != nil {
			break
		}
		if text, err = answers.ReadString('\n'); err == nil && strings.Contains(text, `"id":0`) {
			leave = true
			text, err = answers.ReadString('\n')
		}
		if err == nil && !strings.Contains(text, `"number"`) {
			return fmt.Errorf("a call failed: %s", text)
		}
		calls.Add(1)
	}
	return err
}

// watching watches over one connection until the server asks it to reconnect.
func watching(ctx context.Context, path string, told *atomic.Int64) error {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := fmt.Fprintln(nc, `{"id":1,"func":"hello","data":{"drainNotice":true}}`+"\n"+
		`{"id":2,"func":"watch","data":{"keys":["n0"]}}`); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	for answers := bufio.NewReader(nc); ; {
		text, err := answers.ReadString('\n')
		switch {
		case err != nil || strings.Contains(text, `"error"`):
			return fmt.Errorf("a watch ends: %s %w", text, err)
		case strings.Contains(text, `"draining":true`):
			return nil
		case strings.Contains(text, `"events"`):
			told.Add(1)
		}
	}
}
