package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// TestSpeed compares TCP between two pods of a node with the same over the bridge plugin's network.
// It measures bytes a second over one connection, and connections a second. The two networks take
// turns, so that a busy machine affects both. The test compares the medians of the ratios.
// NETCRAQ_TEST_SPEED is the number of turns. Without it the test makes a short run, and fails below
// a third of the bridge's speed.
func TestSpeed(t *testing.T) {
	turns, least, size, count := 3, 0.3, int64(64<<20), 200
	if s := os.Getenv("NETCRAQ_TEST_SPEED"); s != "" {
		n, err := strconv.Atoi(s)
		check(t, err)
		turns, least, size, count = n, 0.95, 1<<30, 2000
	}
	ours, theirs := newNode(t, "10.244.1.0/24"), newNode(t, "10.244.2.0/24")
	ours.start()
	bridge := theirs.list(map[string]any{"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1500, "ipam": map[string]any{"type": "host-local",
		"dataDir": filepath.Join(theirs.dir, "addresses"), "ranges": [][]map[string]string{{{"subnet": theirs.cidr.String()}}}}})
	a, b := [2]*pod{ours.newPod(t), ours.newPod(t)}, [2]*pod{theirs.newPod(t), theirs.newPod(t)}
	for i := range 2 {
		_, err := ours.add(t, ours.list(), a[i])
		check(t, err)
		_, err = theirs.add(t, bridge, b[i])
		check(t, err)
	}
	startSwitch(t, ours) // the switch has its program, because the test measures a node that serves NetCRAQ
	for _, m := range []struct {
		name string
		do   func(p [2]*pod) float64
	}{
		{"bytes a second", func(p [2]*pod) float64 {
			return float64(size) / send(t, p[0].space, p[1].space, netip.AddrPortFrom(p[1].ip, 80), size).Seconds()
		}},
		{"bytes a second by UDP in split frames", func(p [2]*pod) float64 {
			return float64(size) / splitFrames(t, p, size).Seconds()
		}},
		{"connections a second", func(p [2]*pod) float64 { return connections(t, p, count) }},
	} {
		var ratios []float64
		var rates [2][]float64
		for i := range turns {
			pair := [2][2]*pod{a, b}
			rate := [2]float64{}
			for j := range 2 {
				which := (i + j) % 2
				rate[which] = m.do(pair[which])
				rates[which] = append(rates[which], rate[which])
			}
			ratios = append(ratios, rate[0]/rate[1])
		}
		slices.Sort(ratios)
		t.Logf("%s: NetCRAQ %.3g, bridge %.3g (medians of %d); ratio %.3f (%.3f to %.3f)", m.name, median(rates[0]), median(rates[1]), turns, median(ratios), ratios[0], ratios[len(ratios)-1])
		if r := median(ratios); r < least {
			t.Errorf("%s: %.3f of what the bridge plugin gives, less than %.2f", m.name, r, least)
		}
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// startSwitch gives a node's switch its program, and a chain that has only this member.
func startSwitch(t *testing.T, n *node) {
	t.Helper()
	if _, err := agentapi.NewClient(n.socket()).Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	startController(t, []*node{n})
}

// splitFrames makes a pod send datagrams of 1,400 bytes to another pod. Each frame has 44
// datagrams, and the kernel splits it (UDP_SEGMENT). splitFrames returns the time to send size
// bytes.
func splitFrames(t *testing.T, p [2]*pod, size int64) time.Duration {
	t.Helper()
	const segment, segments = 1400, 44
	server, err := inside(t, p[1].space, func() (net.PacketConn, error) { return net.ListenPacket("udp4", "0.0.0.0:82") })
	check(t, err)
	defer server.Close()
	took, err := inside(t, p[0].space, func() (time.Duration, error) {
		c, err := net.Dial("udp4", netip.AddrPortFrom(p[1].ip, 82).String())
		if err != nil {
			return 0, err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return 0, err
		}
		var refused error
		if err := raw.Control(func(fd uintptr) {
			refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment)
		}); err != nil || refused != nil {
			return 0, errors.Join(err, refused)
		}
		began, frame := time.Now(), make([]byte, segment*segments)
		for sent := int64(0); sent < size; sent += segment * segments {
			if _, err := c.Write(frame); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	})
	check(t, err)
	if _, _, err := server.ReadFrom(make([]byte, 2000)); err != nil {
		t.Error("of the datagrams none arrived")
	}
	return took
}

func connections(t *testing.T, p [2]*pod, count int) float64 {
	t.Helper()
	l, err := inside(t, p[1].space, func() (net.Listener, error) { return net.Listen("tcp", "0.0.0.0:81") })
	check(t, err)
	defer l.Close()
	go echo(l)
	to := netip.AddrPortFrom(p[1].ip, 81).String()
	took, err := inside(t, p[0].space, func() (time.Duration, error) {
		began, word := time.Now(), make([]byte, 1)
		for i := range count {
			c, err := net.DialTimeout("tcp", to, 3*time.Second)
			if err != nil {
				return 0, fmt.Errorf("connection %d: %w", i, err)
			}
			_ = c.(*net.TCPConn).SetLinger(0) // without this, ports would stay in TIME_WAIT
			if _, err = c.Write(word); err == nil {
				_, err = c.Read(word)
			}
			c.Close()
			if err != nil {
				return 0, fmt.Errorf("connection %d: %w", i, err)
			}
		}
		return time.Since(began), nil
	})
	check(t, err)
	return float64(count) / took.Seconds()
}
