package kernelload

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/api/wire"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair creates a new network namespace with the veth pair load and sw. The test continues on a
// thread in that namespace.
func pair(t *testing.T) (load, sw netlink.Link) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace and eBPF")
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	check(t, err)
	space, err := netns.New()
	check(t, err)
	t.Cleanup(func() {
		space.Close()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "load"},
		PeerName: "sw"}))
	var out []netlink.Link
	for _, name := range []string{"load", "sw"} {
		l, err := netlink.LinkByName(name)
		check(t, err)
		check(t, netlink.LinkSetUp(l))
		out = append(out, l)
	}
	return out[0], out[1]
}

func config() Config {
	return Config{Iface: "load", Source: netip.MustParseAddr("10.0.0.1"),
		Target: netip.MustParseAddrPort("10.0.0.2:20035"), Gateway: [6]byte{2, 0, 0, 0, 0, 2},
		Profile: 128,
		Keys:    []wire.Key{0x01000001, 0x01000002, 0x01000003}, Outstanding: 8, FirstPort: 40000,
		Duration: 200 * time.Millisecond, Resend: 20 * time.Millisecond, Seed: 1}
}

func TestReflected(t *testing.T) {
	for _, hook := range []string{"tc", "xdp"} {
		for _, profile := range []wire.Profile{128, 8192} {
			t.Run(hook+"-"+profile.String(), func(t *testing.T) {
				pair(t)
				detach, err := Reflect("sw", hook == "xdp", "load")
				check(t, err)
				defer detach()
				cfg := config()
				cfg.Profile, cfg.Reflected, cfg.WritePercent = profile, true, 30
				r, err := Run(context.Background(), cfg)
				check(t, err)
				if r.Rate() < 1000 || r.Write.Answered == 0 || r.Read.Answered < r.Write.Answered ||
					r.Wrong+r.Stray > 0 {
					t.Errorf("%+v %+v", r.Rate(), r)
				}
				t.Logf("%.0f a second, p50 %v, p99 %v", r.Rate(), r.Read.Quantile(0.5),
					r.Read.Quantile(0.99))
			})
		}
	}
}

// TestLost: no query gets an answer, so every query is resent repeatedly.
func TestLost(t *testing.T) {
	pair(t)
	r, err := Run(context.Background(), config())
	check(t, err)
	if r.Read.Answered != 0 || r.Resent < 3*8 {
		t.Errorf("%d answers, %d sent again", r.Read.Answered, r.Resent)
	}
}

// TestAnswers: the test answers as a switch, and checks how the load counts each answer.
func TestAnswers(t *testing.T) {
	_, sw := pair(t)
	// This starts the runtime's poller before threads are counted.
	conn, err := net.ListenPacket("udp4", ":0")
	check(t, err)
	conn.Close()
	cfg := config()
	// Only one query is outstanding. The long Resend avoids resending a query whose answer is only
	// late on a busy machine.
	cfg.Outstanding, cfg.Duration, cfg.Resend = 1, time.Second, 250*time.Millisecond
	answers := []func(q wire.Packet) wire.Packet{
		// the right answer
		func(q wire.Packet) wire.Packet { return q },
		// an answer with another key's value
		func(q wire.Packet) wire.Packet { q.Value = Value(128, q.Key+1, 7); return q },
		// an answer with a short value
		func(q wire.Packet) wire.Packet { q.Value = q.Value[:15]; return q },
		// an answer with a torn value
		func(q wire.Packet) wire.Packet {
			q.Value = append(q.Value[:15:15],
				q.Value[15]^1)
			return q
		},
		// an answer for another key
		func(q wire.Packet) wire.Packet { q.Key++; return q },
		// an answer without a value
		func(q wire.Packet) wire.Packet { q.Status, q.Value = wire.NotFound, nil; return q },
		// An answer to no query: the query is resent, and then it gets the next answer.
		func(q wire.Packet) wire.Packet { q.Request++; return q },
		// the right answer
		func(q wire.Packet) wire.Packet { return q },
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	started := make(chan struct{})
	space, err := netns.Get()
	check(t, err)
	defer space.Close()
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err := netns.Set(space); err != nil {
			done <- err
			return
		}
		done <- play(sw.Attrs().Index, answers, started, stop)
	}()
	<-started
	r, err := Run(context.Background(), cfg)
	check(t, err)
	close(stop)
	check(t, <-done)
	if r.Read.Answered != 7 || r.Wrong != 4 || r.Stray != 1 || r.Read.Status[wire.NotFound] != 1 ||
		r.Read.Status[wire.OK] != 6 || r.Resent == 0 {
		t.Errorf("%d answers, %d wrong, %d stray, %d not found, %d ok, %d sent again",
			r.Read.Answered, r.Wrong, r.Stray, r.Read.Status[wire.NotFound],
			r.Read.Status[wire.OK], r.Resent)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no keys":      func(c *Config) { c.Keys = nil },
		"too many":     func(c *Config) { c.Outstanding = maxSlots + 1 },
		"ports":        func(c *Config) { c.FirstPort = 65535 },
		"no sessions":  func(c *Config) { c.WritePercent = 5 },
		"profile":      func(c *Config) { c.Profile = 77 },
		"weights":      func(c *Config) { c.Weights = []float64{1} },
		"no time":      func(c *Config) { c.Duration = 0 },
		"no interface": func(c *Config) { c.Iface = "nosuch0" },
	} {
		cfg := config()
		change(&cfg)
		if _, err := Run(context.Background(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
