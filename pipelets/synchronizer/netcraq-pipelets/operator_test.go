package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/kubetest"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/internal/syncbuffer"
)

// Two operators, one of which leads, are killed at random, and so are source and destination: each
// numbered record arrives once, in order. A Lease takes 15 s to become another's, so this takes
// 40 s at least.
func TestKillOperator(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	for _, name := range []string{"namespace.yaml", "crd/netcraq.io_pipelets.yaml", "rbac.yaml"} {
		s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../../deploy/"+name)
	}
	s.Kubectl(t, kubetest.Options{}, "wait", "--for=condition=Established", "--timeout=60s", "crd", "pipelets.netcraq.io")
	config := s.Kubeconfig(t, s.As(s.Token(t, "netcraq-pipelets", "netcraq-pipelets", "n1")))
	from, to := newServer(t), newServer(t)
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", file(t, head+`
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
  flow: SELECT key, value FROM src WHERE value::BIGINT %% 2 = 0
`, "p1", from.Endpoint, to.Endpoint))
	out := &syncbuffer.Buffer{}
	operators := make([]*exec.Cmd, 2)
	end := func(i int) {
		if c := operators[i]; c != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
	t.Cleanup(func() { end(0); end(1) })
	again := func(i int) {
		end(i)
		operators[i] = begin(t, out, "operator", "--kubeconfig", config, "--namespace", "netcraq-pipelets",
			"--webhook-port", "0", "--metrics", "0", "--health", "0")
	}
	again(0)
	again(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()
	leader := func() string {
		return s.Kubectl(t, kubetest.Options{}, "-n", "netcraq-pipelets", "get", "lease", "netcraq-pipelets", "-o",
			"jsonpath={.spec.holderIdentity}")
	}
	was, led, kills, servers := "", 0, 0, 0
	for end := time.Now().Add(max(40*time.Second, killsFor(t))); time.Now().Before(end); {
		if now := leader(); now != was {
			was, led = now, led+1
			time.Sleep(time.Duration(1+rand.IntN(3)) * time.Second) // it gets something done
			again(0)
			again(1) // the leader is one of them
			kills += 2
		}
		if rand.IntN(3) == 0 {
			e := []*etcdServer{from, to}[rand.IntN(2)]
			e.Kill()
			e.Start()
			servers++
		}
		time.Sleep(time.Second)
	}
	cancel()
	n := <-numbered
	want := (n + 1) / 2
	poll.Nil(t, 2*time.Minute, "all records", func() error {
		got := arrivals(t, to, "out/")
		for i, k := range got {
			if w := fmt.Sprintf("%08d=%d", 2*i, 2*i); k != w {
				t.Fatalf("record %d is %s, want %s", i, k, w)
			}
		}
		if len(got) != want {
			return fmt.Errorf("%d of %d", len(got), want)
		}
		return nil
	}, out.String)
	t.Logf("%d records; %d leaders, operators killed %d times, servers %d", n, led, kills, servers)
	if led < 2 || servers == 0 {
		t.Error("too little happened")
	}
}
