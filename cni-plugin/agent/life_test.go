package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// TestKilledInAdd kills the agent with SIGKILL before each step of an ADD. The plugin gives the
// address back. The next agent removes what is left of the attachment.
func TestKilledInAdd(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	l := n.list()
	for _, step := range agent.Steps {
		t.Run(step, func(t *testing.T) {
			n.startMortal(step)
			p := n.newPod(t)
			_, err := n.add(t, l, p)
			expectCode(t, "ADD", err, types.ErrTryAgainLater)
			n.died()
			for _, l := range n.left(t) {
				if strings.Contains(l, "addresses") {
					t.Errorf("left while no agent runs: %s", l)
				}
			}
			if err := n.del(t, l, p); strings.Contains(strings.Join(n.left(t), " "), "interface") {
				expectCode(t, "DEL without an agent", err, types.ErrTryAgainLater)
			} else if err != nil {
				t.Errorf("DEL without an agent, of what has no interface: %v", err)
			}
			n.start()
			// Everything was done, but the plugin did not learn of it. The next pod gets the same
			// address, and its attachment removes this one.
			if step == agent.Steps[len(agent.Steps)-1] {
				there, err := agentapi.NewClient(n.socket()).Attachments(context.Background())
				check(t, err)
				q := n.newPod(t)
				q.rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", there[0].Addresses[0].Prefix.Addr().String()}}
				_, err = n.add(t, l, q)
				check(t, err)
				check(t, n.check(t, l, q))
				if records := filesIn(t, n.state()); len(records) != 1 {
					t.Errorf("records: %v", records)
				}
				check(t, n.del(t, l, q))
			}
			n.expectNothingLeft(t)
			check(t, n.del(t, l, p)) // the runtime repeats its DEL
			_, err = n.add(t, l, p)  // nothing is left that would make a second ADD of the same container fail
			check(t, err)
			check(t, n.check(t, l, p))
			check(t, n.del(t, l, p))
			n.expectNothingLeft(t)
			n.kill()
		})
	}
}

// TestRestart kills the agent and starts it again while two pods send over one connection.
func TestRestart(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	p, q, gone := n.mustAdd(t), n.mustAdd(t), n.mustAdd(t)
	done := converse(t, p, q)
	client := agentapi.NewClient(n.socket())
	before, err := client.Attachments(context.Background())
	check(t, err)
	for range 3 {
		n.kill()
		time.Sleep(50 * time.Millisecond)
		n.start()
		check(t, n.check(t, l, p))
	}
	after, err := client.Attachments(context.Background())
	check(t, err)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("attachments before:\n%v\nafter:\n%v", before, after)
	}
	// When the next agent starts, it forgets a pod that was removed while no agent ran.
	n.kill()
	sh(t, "ip", "netns", "del", gone.space)
	n.start()
	rounds, longest := done()
	if len(filesIn(t, n.state())) != 2 {
		t.Errorf("records: %v", filesIn(t, n.state()))
	}
	t.Logf("%d round trips while the agent was killed four times; the longest took %v", rounds, longest)
	if rounds < 100 || longest > 2*time.Second {
		t.Errorf("%d round trips, the longest %v: pods notice", rounds, longest)
	}
	for _, x := range []*pod{p, q, gone} {
		check(t, n.del(t, l, x))
	}
	n.expectNothingLeft(t)
}

func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	return files
}

// TestStorm attaches and detaches many pods at once.
func TestStorm(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	pods := make([]*pod, 30)
	for i := range pods {
		pods[i] = n.newPod(t)
	}
	each := func(do func(*pod) error) {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := i; j < len(pods); j += 4 {
					if err := do(pods[j]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	began := time.Now()
	each(func(p *pod) error { _, err := n.add(t, l, p); return err })
	t.Logf("%d ADDs in %v", len(pods), time.Since(began))
	ports := map[uint32]bool{}
	records, err := agentapi.NewClient(n.socket()).Attachments(context.Background())
	check(t, err)
	for _, r := range records {
		ports[r.Port] = true
	}
	if len(ports) != len(pods) {
		t.Errorf("%d pods have %d ports", len(pods), len(ports))
	}
	each(func(p *pod) error { return n.check(t, l, p) })
	each(func(p *pod) error { return n.del(t, l, p) })
	n.expectNothingLeft(t)
}

// converse makes two pods talk over one TCP connection without a pause. done stops them. It returns
// the number of round trips and the duration of the longest one.
func converse(t *testing.T, p, q *pod) (done func() (rounds int, longest time.Duration)) {
	t.Helper()
	var rounds int
	var longest time.Duration
	server, err := inside(t, q.space, func() (net.Listener, error) { return net.Listen("tcp", "0.0.0.0:80") })
	check(t, err)
	go echo(server)
	conn, err := inside(t, p.space, func() (net.Conn, error) {
		return net.DialTimeout("tcp", netip.AddrPortFrom(q.ip, 80).String(), 3*time.Second)
	})
	check(t, err)
	stop := make(chan struct{})
	var talking sync.WaitGroup
	talking.Go(func() {
		b := make([]byte, 8)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			began := time.Now()
			_ = conn.SetDeadline(began.Add(5 * time.Second))
			if _, err := conn.Write([]byte("12345678")); err != nil {
				t.Errorf("the connection broke: %v", err)
				return
			}
			if _, err := conn.Read(b); err != nil {
				t.Errorf("the connection broke: %v", err)
				return
			}
			rounds++
			longest = max(longest, time.Since(began))
		}
	})
	return func() (int, time.Duration) {
		close(stop)
		talking.Wait()
		conn.Close()
		server.Close()
		return rounds, longest
	}
}
