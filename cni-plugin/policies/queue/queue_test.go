package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/florianl/go-nfqueue"
	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

const (
	number  = 98
	allowed = 80
	denied  = 81
)

func sh(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// in runs f on a thread in a network namespace.
func in(t *testing.T, space string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		h, err := netns.GetFromName(space)
		if err == nil {
			defer h.Close()
			err = netns.Set(h)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// judge starts a judge that accepts only connections to the permitted port. It runs until end is
// called.
func judge(t *testing.T, space string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var nf *nfqueue.Nfqueue
	if err := in(t, space, func() (err error) {
		nf, err = nfqueue.Open(&nfqueue.Config{NfQueue: number, MaxPacketLen: 128, MaxQueueLen: 128,
			Copymode: nfqueue.NfQnlCopyPacket, WriteTimeout: 100 * time.Millisecond})
		if err != nil {
			return err
		}
		return nf.RegisterWithErrorFunc(ctx, func(a nfqueue.Attribute) int {
			transport := (*a.Payload)[20:]
			if (*a.Payload)[0]>>4 == 6 {
				transport = (*a.Payload)[40:]
			}
			verdict := nfqueue.NfDrop
			if binary.BigEndian.Uint16(transport[2:]) == allowed {
				verdict = nfqueue.NfAccept
			}
			_ = nf.SetVerdict(*a.PacketID, verdict)
			return 0
		}, func(error) int { return 0 })
	}); err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); nf.Close() }
}

// icmp reports whether an ICMPv6 message of a pod arrives at another pod. It waits longer if it
// expects the message.
func icmp(t *testing.T, from, to, address string, kind byte, hops int, expected bool) bool {
	t.Helper()
	var l net.PacketConn
	if err := in(t, to, func() (err error) { l, err = net.ListenPacket("ip6:ipv6-icmp", "::"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	patience := 30 * time.Millisecond
	if expected {
		patience = 10 * time.Second
	}
	mark := []byte{kind, 0, 0, 0, 'm', 'a', 'r', byte(hops)}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := in(t, from, func() error {
			c, err := net.Dial("ip6:ipv6-icmp", address)
			if err != nil {
				return err
			}
			defer c.Close()
			raw, err := c.(*net.IPConn).SyscallConn()
			if err != nil {
				return err
			}
			err = errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops)
			}), err)
			if err == nil {
				_, err = c.Write(mark)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		_ = l.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		for {
			got := make([]byte, 100)
			n, _, err := l.ReadFrom(got)
			if err != nil {
				break
			}
			if n == len(mark) && got[0] == kind && string(got[4:n]) == string(mark[4:]) {
				return true
			}
		}
	}
	return false
}

// TestApply checks that packets between pods of a node are judged, in both address families. They
// must not pass without a judge. Packets between the node's own interfaces are not judged.
func TestApply(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: needs ip (iproute2)")
	}
	prefix := fmt.Sprintf("ncqtest-%d-", os.Getpid())
	node, other := prefix+"policies", prefix+"outside"
	spaces := []string{node, prefix + "a", prefix + "b", other}
	for i, s := range spaces {
		sh(t, "ip netns add "+s+"; ip -n "+s+" link set lo up")
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", s).Run() })
		if i == 0 {
			sh(t, "ip netns exec "+s+" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'")
			continue
		}
		name := fmt.Sprintf("ncq%d", i)
		if s == other {
			name = "out0"
		}
		sh(t, fmt.Sprintf(`ip -n %[1]s link add %[2]s type veth peer name eth0 netns %[3]s
			ip -n %[1]s addr add 10.%[4]d.0.1/24 dev %[2]s; ip -n %[1]s addr add fd00:%[4]d::1/64 dev %[2]s nodad; ip -n %[1]s link set %[2]s up
			ip -n %[3]s addr add 10.%[4]d.0.2/24 dev eth0; ip -n %[3]s addr add fd00:%[4]d::2/64 dev eth0 nodad; ip -n %[3]s link set eth0 up
			ip -n %[3]s route add default via 10.%[4]d.0.1; ip -n %[3]s route add default via fd00:%[4]d::1`, node, name, s, i))
	}
	passes := func(from, to, address string, port int, patience time.Duration) bool {
		t.Helper()
		var l net.Listener
		if err := in(t, to, func() (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return in(t, from, func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(address, fmt.Sprint(port)), patience)
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	}
	for _, hops := range []int{2, 64, 255} {
		if !icmp(t, spaces[1], spaces[2], "fd00:2::2", 143, hops, true) {
			t.Fatalf("without rules ICMPv6 with hop limit %d does not arrive: the test means nothing", hops)
		}
	}
	const long, short = 10 * time.Second, 300 * time.Millisecond
	b := []string{"10.2.0.2", "fd00:2::2"}
	for _, address := range b {
		if !passes(spaces[1], spaces[2], address, denied, long) {
			t.Fatalf("without rules %s is not reached: the test means nothing", address)
		}
	}
	by := ""
	apply := func(failOpen bool) {
		t.Helper()
		if err := in(t, node, func() (err error) {
			by, err = Rules{Number: number, Prefix: "ncq", FailOpen: failOpen, Rate: 1000}.Apply()
			return err
		}); err != nil {
			if strings.Contains(err.Error(), "no such file") {
				t.Skipf("skipped: the kernel has neither kind of queue: %v", err)
			}
			t.Fatal(err)
		}
	}
	apply(false)
	for _, address := range b {
		if passes(spaces[1], spaces[2], address, allowed, short) {
			t.Errorf("%s is reached, and nobody judges", address)
		}
	}
	unselected := func(interfaces ...string) {
		t.Helper()
		if err := in(t, node, func() error { return SetUnselected(interfaces) }); err != nil {
			t.Fatal(err)
		}
	}
	unselected("ncq1")
	if !passes(spaces[1], other, "fd00:3::2", denied, long) || !passes(other, spaces[1], "10.1.0.2", denied, long) {
		t.Error("nobody judges, and a pod that no policy selects has no connections to and from other nodes")
	}
	if passes(spaces[1], spaces[2], b[0], allowed, short) || passes(spaces[2], spaces[1], "fd00:1::2", allowed, short) {
		t.Error("nobody judges, and a pod that a policy selects has connections")
	}
	unselected("ncq1", "ncq2")
	if !passes(spaces[1], spaces[2], b[0], denied, long) || !passes(spaces[1], spaces[2], b[1], denied, long) {
		t.Error("nobody judges, and two pods that no policy selects have no connections")
	}
	unselected()
	if passes(spaces[1], spaces[2], b[0], allowed, short) || passes(spaces[1], other, "fd00:3::2", allowed, short) {
		t.Error("policies select all pods again, nobody judges, and they have connections")
	}
	if !passes(node, other, "10.3.0.2", denied, long) {
		t.Error("the node does not reach what is outside of it")
	}
	if !passes(node, spaces[2], "10.2.0.2", denied, long) {
		t.Error("the node, root there, does not reach its pods: no probe of kubelet's does")
	}
	end := judge(t, node)
	for _, address := range b {
		if !passes(spaces[1], spaces[2], address, allowed, long) ||
			passes(spaces[1], spaces[2], address, denied, short) {
			t.Errorf("%s: it is not as is judged", address)
		}
	}
	// Messages for one link must not bypass policies, whatever their hop limit is.
	for _, kind := range []byte{130, 131, 132, 133, 134, 135, 136, 137, 143} {
		for _, hops := range []int{2, 64, 255} {
			if icmp(t, spaces[1], spaces[2], b[1], kind, hops, false) {
				t.Errorf("ICMPv6 of type %d with hop limit %d passes", kind, hops)
			}
		}
	}
	for i, address := range []string{"10.3.0.2", "fd00:3::2"} { // packets to and from an address outside of the node
		if !passes(spaces[1], other, address, allowed, long) || passes(spaces[1], other, address, denied, short) {
			t.Errorf("%s: it is not as is judged", address)
		}
		if !passes(other, spaces[2], b[i], allowed, long) || passes(other, spaces[2], b[i], denied, short) {
			t.Errorf("%s from outside: it is not as is judged", b[i])
		}
	}
	end()
	apply(true)
	if !passes(spaces[1], spaces[2], b[0], denied, long) {
		t.Error("nobody judges, and nothing passes, with failOpen")
	}
	for range 2 { // the second time, there is nothing to remove
		if err := in(t, node, Remove); err != nil {
			t.Error(err)
		}
	}
	if !passes(spaces[1], spaces[2], b[1], denied, long) {
		t.Error("the rules are removed, and nothing passes")
	}
	if _, err := (Rules{Number: number}).Apply(); err == nil {
		t.Error("the rules are for all interfaces")
	}
	if err := in(t, node, func() error { return SetUnselected([]string{"ncq1"}) }); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the rules are removed, and the set of them takes interfaces: %v", err)
	}
	t.Logf("packets are queued by %s here", by)
}

// TestTunnels checks that a node's tunnel packets, with pods' packets or the switch's frames
// inside, are not judged like a pod's packets. They must not count for any pod's rate.
func TestTunnels(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	prefix := fmt.Sprintf("ncqtest-%d-", os.Getpid())
	node, pod, other := prefix+"sends", prefix+"pod", prefix+"peer"
	for _, s := range []string{node, pod, other} {
		sh(t, "ip netns add "+s)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", s).Run() })
	}
	// The bridge replaces the switch. It forwards frames unchanged.
	sh(t, fmt.Sprintf(`ip -n %[1]s link add eth0 type veth peer name eth0 netns %[3]s
		ip -n %[1]s addr add 10.9.0.1/24 dev eth0; ip -n %[1]s link set eth0 up
		ip -n %[3]s addr add 10.9.0.2/24 dev eth0; ip -n %[3]s link set eth0 up
		ip -n %[1]s link add ncqf0a090002 type vxlan id 7 dstport 20037 local 10.9.0.1 remote 10.9.0.2 dev eth0
		ip -n %[1]s link add sw0 type bridge; ip -n %[1]s link set sw0 up
		ip -n %[1]s link set ncqf0a090002 master sw0 up
		ip -n %[1]s link add ncqpod type veth peer name eth0 netns %[2]s
		ip -n %[1]s link set ncqpod master sw0 up
		ip -n %[2]s addr add 10.8.0.2/24 dev eth0; ip -n %[2]s link set eth0 up`, node, pod, other))
	var wire net.PacketConn
	if err := in(t, other, func() (err error) {
		wire, err = net.ListenPacket("udp4", "10.9.0.2:20037")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	arrives := func() bool {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			_ = exec.Command("ip", "netns", "exec", pod, "ping", "-c1", "-W1", "10.8.0.9").Run() // sends ARP requests
			_ = wire.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, _, err := wire.ReadFrom(make([]byte, 2000)); err == nil {
				return true
			}
		}
		return false
	}
	if !arrives() {
		t.Fatal("without rules nothing arrives by the tunnel: the test means nothing")
	}
	for _, rate := range []uint32{1000, 0} {
		if err := in(t, node, func() error {
			_, err := Rules{Number: number, Prefix: "ncq", Rate: rate}.Apply()
			return err
		}); err != nil {
			if strings.Contains(err.Error(), "no such file") {
				t.Skipf("skipped: the kernel has neither kind of queue: %v", err)
			}
			t.Fatal(err)
		}
		_ = wire.SetReadDeadline(time.Now().Add(time.Millisecond))
		for err := error(nil); err == nil; {
			_, _, err = wire.ReadFrom(make([]byte, 2000)) // skips packets from before the rules
		}
		if !arrives() {
			t.Errorf("with a rate of %d and nobody who judges, a tunnel's packet does not leave the node", rate)
		}
	}
}

// TestKeep simulates a firewall that is reloaded and so removes the tables. Keep must restore them
// at once, until it ends.
func TestKeep(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	node := fmt.Sprintf("ncqtest-%d-keep", os.Getpid())
	sh(t, "ip netns add "+node)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", node).Run() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	restored := make(chan error, 100)
	var ended <-chan struct{}
	if err := in(t, node, func() (err error) {
		rules := Rules{Number: number, Prefix: "ncq"}
		if _, err = rules.Apply(); err == nil {
			ended, err = rules.Keep(ctx, func(err error) { restored <- err })
		}
		return err
	}); err != nil {
		if strings.Contains(err.Error(), "no such file") {
			t.Skipf("skipped: the kernel has neither kind of queue: %v", err)
		}
		t.Fatal(err)
	}
	there := func() (out bool) {
		t.Helper()
		if err := in(t, node, func() error {
			conn, err := nftables.New()
			if err == nil {
				out, err = nftwatch.Present(conn, Table, families...)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	flush := func() {
		t.Helper()
		if err := in(t, node, func() error { // the same as "nft flush ruleset"
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			conn.FlushRuleset()
			return conn.Flush()
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		flush()
		select {
		case err := <-restored:
			if err != nil || !there() {
				t.Errorf("they are put back: %v, and there: %v", err, there())
			}
		case <-time.After(nftwatch.Every / 2):
			t.Fatal("half a second after the tables were deleted they are not there again")
		}
	}
	cancel()
	<-ended
	flush()
	time.Sleep(nftwatch.Every + nftwatch.Every/2)
	if there() || len(restored) > 0 {
		t.Error("nobody keeps them any more, and they are there again")
	}
}
