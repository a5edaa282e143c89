package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// TestKillOperator runs two replicas of the operator that share two pipelets. It kills replicas,
// the source and the destinations at random. Each numbered record must arrive once, in order, at
// both destinations. The Lease of a replica expires after 15 s, so the test takes at least 40 s.
func TestKillOperator(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	for _, name := range []string{"namespace.yaml", "crd/netcraq.io_pipelets.yaml", "rbac.yaml"} {
		s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../../deploy/"+name)
	}
	s.Kubectl(t, kubetest.Options{}, "wait", "--for=condition=Established", "--timeout=60s", "crd", "pipelets.netcraq.io")
	config := s.Kubeconfig(t, s.As(s.Token(t, "netcraq-pipelets", "netcraq-pipelets", "n1")))
	from, to := newServer(t), newServer(t)
	const flow = "  flow: SELECT key, value FROM src WHERE value::BIGINT %% 2 = 0\n"
	for name, more := range map[string]string{"p1": "", "p2": "  interval: 0.1\n"} {
		s.Kubectl(t, kubetest.Options{}, "apply", "-f", file(t, head+flow+more+`
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: %s/}}]
`, name, from.Endpoint, to.Endpoint, name))
	}
	out := &syncbuffer.Buffer{}
	replicas := make([]*exec.Cmd, 2)
	end := func(i int) {
		if c := replicas[i]; c != nil {
			c.Process.Kill()
			c.Wait()
		}
		replicas[i] = nil
	}
	t.Cleanup(func() { end(0); end(1) })
	again := func(i int) {
		end(i)
		replicas[i] = begin(t, out, "operator", "--kubeconfig", config, "--namespace", "netcraq-pipelets",
			"--replica", fmt.Sprint("r", i), "--webhook-port", "0", "--metrics", "0", "--health", "0")
	}
	assigned := func() string {
		return s.Kubectl(t, kubetest.Options{}, "get", "pipelets", "-o", "jsonpath={.items[*].status.assigned}")
	}
	is := func(want ...string) {
		t.Helper()
		poll.Nil(t, time.Minute, fmt.Sprint("they are assigned to ", want), func() error {
			if got := assigned(); !slices.Contains(want, got) {
				return fmt.Errorf("they are to %q", got)
			}
			return nil
		}, out.String)
	}
	again(0)
	again(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()
	is("r0 r1", "r1 r0")
	last := time.Now().Add(max(40*time.Second, killsFor(t)))
	gone := rand.IntN(2) // this replica stays down until the other replica runs all pipelets
	end(gone)
	is([]string{"r1 r1", "r0 r0"}[gone])
	again(gone)
	is("r0 r1", "r1 r0")
	was, taken, kills, servers := assigned(), 2, 1, 0
	away := [2]time.Time{} // time until which each replica stays down
	for time.Now().Before(last) || servers == 0 {
		for i, c := range replicas {
			switch {
			case c == nil && time.Now().After(away[i]):
				again(i)
			case c != nil && rand.IntN(8) == 0:
				end(i)
				away[i] = time.Now().Add(time.Duration(rand.IntN(25)) * time.Second)
				kills++
			}
		}
		if rand.IntN(3) == 0 {
			e := []*etcdServer{from, to}[rand.IntN(2)]
			e.Kill()
			e.Start()
			servers++
		}
		if now := assigned(); now != was {
			was = now
			taken++
		}
		time.Sleep(time.Second)
	}
	cancel()
	for i, c := range replicas {
		if c == nil {
			again(i)
		}
	}
	n := <-numbered
	want := (n + 1) / 2
	for _, name := range []string{"p1", "p2"} {
		poll.Nil(t, 2*time.Minute, "all records", func() error {
			got := arrivals(t, to, name+"/")
			for i, k := range got {
				if w := fmt.Sprintf("%08d=%d", 2*i, 2*i); k != w {
					t.Fatalf("%s: record %d is %s, want %s", name, i, k, w)
				}
			}
			if len(got) != want {
				return fmt.Errorf("%s: %d of %d", name, len(got), want)
			}
			return nil
		}, out.String)
	}
	t.Logf("%d records; replicas killed %d times, assigned anew %d times, servers killed %d", n, kills, taken, servers)
	if servers == 0 {
		t.Error("too little happened")
	}
}
