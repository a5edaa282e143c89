package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// queued returns the number of packets that the kernel has queued on a node.
func (n *node) queued() int {
	n.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", n.space("node"), "cat", "/proc/net/netfilter/nfnetlink_queue").Output()
	if err != nil {
		n.t.Fatal(err)
	}
	f := strings.Fields(string(out)) // queue, port, waiting, mode, range, dropped, dropped by user, sequence, 1
	if len(f) < 8 {                  // no process listens at a queue yet
		return 0
	}
	sequence, err := strconv.Atoi(f[7])
	if err != nil {
		n.t.Fatal(err)
	}
	return sequence
}

// connects makes connections from one pod to port 8080 of another pod, one after the other. It
// returns the durations, sorted.
func (n *node) connects(from string, to, count int) []time.Duration {
	n.t.Helper()
	var took []time.Duration
	if err := in(n.space(from), func() error {
		for range count {
			began := time.Now()
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(addresses(to)[0], "8080"), 20*time.Second)
			if err != nil {
				return err
			}
			took = append(took, time.Since(began))
			conn.Close()
		}
		return nil
	}); err != nil {
		n.t.Fatalf("%s to pod %d: %v", from, to, err)
	}
	slices.Sort(took)
	return took
}

// flood sends packets of new flows from one pod to another at a rate per second, until stop is
// called. stop returns how many packets were sent.
func (n *node) flood(from string, to, rate int) (stop func() int) {
	n.t.Helper()
	var socket *net.UDPConn
	if err := in(n.space(from), func() (err error) {
		socket, err = net.ListenUDP("udp4", nil)
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	end, sent := make(chan struct{}), make(chan int)
	go func() {
		defer socket.Close()
		address := netip.MustParseAddr(addresses(to)[0])
		count := 0
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			for due := int(time.Since(began).Seconds() * float64(rate)); count < due; count++ {
				_, _ = socket.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(address, uint16(1+count%65535)))
			}
			select {
			case <-end:
				sent <- count
				return
			default:
			}
		}
	}()
	return func() int { close(end); return <-sent }
}

// TestFlood checks that packets between pods that no policy selects are not queued. A pod that
// starts thousands of flows a second must not delay other pods' connections to a pod that a policy
// selects.
func TestFlood(t *testing.T) {
	names := []string{"a", "b", "c", "d", "vx"} // a policy selects only c; ncqvx is a tunnel to other nodes
	n := newNode(t, names...)
	for _, name := range names {
		var l net.Listener
		if err := in(n.space(name), func() (err error) { l, err = net.Listen("tcp", ":8080"); return err }); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	e := n.enforce()
	change := func(object any) {
		t.Helper()
		if err := e.change(changeOf(object)); err != nil {
			t.Fatal(err)
		}
	}
	change(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	policy := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "of-c"}}
	if err := json.Unmarshal([]byte(`{"podSelector":{"matchLabels":{"app":"c"}},"policyTypes":["Ingress"],
		"ingress":[{"ports":[{"protocol":"TCP","port":8080}]}]}`), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	change(policy)
	for i, name := range names[:4] {
		uid := "uid-" + name
		r := agentapi.Record{Pod: agentapi.Pod{Namespace: "x", Name: name, UID: uid},
			Host: agentapi.Interface{Name: "ncq" + name}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(uid),
			Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{NodeName: "n1"}}
		for _, ip := range addresses(i) {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			r.Addresses = append(r.Addresses, agentapi.Address{Prefix: netip.PrefixFrom(netip.MustParseAddr(ip), 24)})
		}
		change(&r)
		change(p)
	}
	const b, c, d = 1, 2, 3
	grows := func(from string, to int) bool {
		t.Helper()
		before := n.queued()
		n.connects(from, to, 1)
		return n.queued() > before
	}
	// becomes waits until connections are queued for judgement. If the argument judged is false, it
	// waits until they are not.
	becomes := func(from string, to int, judged bool) bool {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if grows(from, to) == judged {
				return true
			}
		}
		return false
	}
	for _, from := range []string{"a", "b"} {
		if !becomes(from, c, true) {
			t.Errorf("a connection from %s to c is not judged, and a policy selects c", from)
		}
	}
	if !grows("c", d) {
		t.Error("a connection from c is not judged, and a policy selects c")
	}
	if !becomes("a", b, false) {
		t.Error("connections between pods that no policy selects are judged")
	}
	without := n.connects("b", c, 50)
	for from, rate := range map[string]float64{"a": 1000, "vx": 4000} {
		began, before := time.Now(), n.queued()
		stop := n.flood(from, c, 50000)
		time.Sleep(300 * time.Millisecond)
		with := n.connects("b", c, 5)
		sent, judged := stop(), n.queued()-before
		took := time.Since(began).Seconds()
		t.Logf("b connects to c in %v (median of %d), and beside %.0f new flows a second of %s's, of which %.0f are judged, in %v, at most %v (%d)",
			without[25], len(without), float64(sent)/took, from, float64(judged)/took, with[2], with[4], len(with))
		if bound := 200*time.Millisecond + 5*without[25]; with[2] > bound {
			t.Errorf("beside a flood of %s's another pod's connections take %v, and %v are allowed", from, with[2], bound)
		}
		if bound := rate*took + 600; float64(judged) > bound {
			t.Errorf("of %d packets of %s's %d are judged in %.2f s, and %.0f are allowed", sent, from, judged, took, bound)
		}
	}
	// From here on, a policy for all pods applies to connections.
	policy.Spec.PodSelector = metav1.LabelSelector{}
	change(policy)
	if !becomes("a", b, true) {
		t.Error("a policy selects a and b, and connections between them are not judged")
	}
	e.end()
}
