package inprocess

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// asking is a connection to a sidecar, which serves the node API.
type asking struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

// ask sends a request and returns the answer.
func (a *asking) ask(request string) string {
	a.t.Helper()
	_ = a.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := fmt.Fprintln(a, request); err != nil {
		a.t.Fatal(err)
	}
	text, err := a.answers.ReadString('\n')
	if err != nil {
		a.t.Fatalf("%s: %v", request, err)
	}
	return text
}

func (a *asking) want(request, part string) {
	a.t.Helper()
	if got := a.ask(request); !strings.Contains(got, part) {
		a.t.Errorf("%s: %s, want %s", request, got, part)
	}
}

// TestDurable checks that the keys of a durable namespace are stored in etcd, and survive the end
// of every process. Other namespaces continue in the switches while etcd is down. A change of the
// policy must not hide a key.
func TestDurable(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "netcraq-sidecar")
	out, err := exec.Command("go", "build", "-o", binary, "../../../nodeapi/cmd/netcraq-sidecar").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x := newTestbed(t, twoChains())
	r := x.controller()
	r.WaitAllReady()
	way, url := newRelay(x, 1)
	way.ask(r.URL)
	etcd := etcdtest.New(t, 1, etcdtest.Options{})
	policy := filepath.Join(dir, "policy.yaml")
	say := func(namespaces string) {
		t.Helper()
		text := "callers: [{all: true, namespace: " + shop + ", access: {'*': write}}]\nnamespaces: " + namespaces + "\n"
		if err := os.WriteFile(policy+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(policy+".new", policy); err != nil {
			t.Fatal(err)
		}
	}
	say("{vault: {durable: true}}")
	socket := filepath.Join(dir, "node.sock")
	start := func() (c *exec.Cmd, dial func() *asking) {
		t.Helper()
		said := new(syncbuffer.Buffer)
		c = exec.Command(binary, "--listen", "unix://"+socket, "--admin", url, "--token-file", "",
			"--node", "h1", "--namespace", shop,
			"--policy", policy, "--endpoints", strings.Join(etcd.Endpoints(), ","))
		c.Stdout, c.Stderr = said, said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		poll.Until(t, 30*time.Second, "it serves", func() bool { return strings.Contains(said.String(), "ready:") }, said.String)
		return c, func() *asking {
			t.Helper()
			nc, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			return &asking{t, nc, bufio.NewReader(nc)}
		}
	}
	first, dial := start()
	a := dial()
	a.want(`{"id":1,"func":"hello"}`, `"durable":false`)
	a.want(`{"id":2,"func":"hello","data":{"namespace":"vault"}}`, `"maxValue":16383,"inFlight":1024,"maxMessage":262144,"durable":true`)
	a.want(`{"id":3,"func":"put","data":{"key":"k","value":"kept"}}`, `"version":"16384.`)
	a.want(`{"id":4,"func":"put","data":{"namespace":"`+shop+`","key":"k","value":"fast"}}`, `"version":"1.`)
	a.want(`{"id":5,"func":"lock","data":{"name":"l","waitMs":0,"ttlMs":2000}}`, `"held":true`)
	a.want(`{"id":6,"func":"increment","data":{"key":"n","by":7}}`, `"number":7`)

	// All processes are killed, except the switches of the chains.
	_ = first.Process.Kill()
	_ = first.Wait()
	etcd.Kill(0)
	_, dial = start()
	a = dial()
	a.want(`{"id":1,"func":"get","data":{"key":"k"}}`, `"value":"fast"`)
	a.want(`{"id":2,"func":"put","data":{"key":"new","value":"fast"}}`, `"version":"1.`)
	a.want(`{"id":3,"func":"get","data":{"namespace":"vault","key":"k"}}`, `"code":"unavailable"`)
	a.want(`{"id":4,"func":"put","data":{"namespace":"vault","key":"k","value":"x"}}`, `etcd, where durable keys are, cannot be reached`)
	etcd.Start(0)
	poll.Until(t, 30*time.Second, "durable keys are there again", func() bool {
		return strings.Contains(a.ask(`{"id":5,"func":"get","data":{"namespace":"vault","key":"k"}}`), `"value":"kept"`)
	})
	a.want(`{"id":6,"func":"get","data":{"namespace":"vault","key":"n"}}`, `"value":"7"`)
	// The lock's holder is dead, so another client acquires the lock when the lease has expired.
	a.want(`{"id":7,"func":"lock","data":{"namespace":"vault","name":"l"},"timeoutMs":60000}`, `"held":true`)

	// The policy changes. Existing volatile keys stay volatile, and are still found.
	say("{" + shop + ": {durable: true}, vault: {durable: false}}")
	poll.Until(t, 30*time.Second, "the policy is read", func() bool {
		return strings.Contains(a.ask(`{"id":8,"func":"hello"}`), `"durable":true`)
	})
	a.want(`{"id":9,"func":"get","data":{"key":"k"}}`, `"value":"fast"`)
	a.want(`{"id":10,"func":"put","data":{"key":"k","value":"still fast"}}`, `"version":"1.`)
	a.want(`{"id":11,"func":"put","data":{"key":"other","value":"kept"}}`, `"version":"16384.`)
	a.want(`{"id":12,"func":"get","data":{"namespace":"vault","key":"k"}}`, `"value":"kept"`)
	a.want(`{"id":13,"func":"put","data":{"namespace":"vault","key":"other","value":"fast"}}`, `"version":"1.`)
	// Existing keys are also found if the policy no longer mentions their namespace.
	say("{}")
	poll.Until(t, 30*time.Second, "the policy is read", func() bool {
		return strings.Contains(a.ask(`{"id":14,"func":"hello"}`), `"durable":false`)
	})
	a.want(`{"id":15,"func":"get","data":{"key":"other"}}`, `"value":"kept"`)
	a.want(`{"id":16,"func":"get","data":{"namespace":"vault","key":"k"}}`, `"value":"kept"`)
}
