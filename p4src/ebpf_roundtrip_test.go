package p4src

import (
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/target"
)

// BenchmarkRoundTrip measures a clean read by one client, one request at a time. The client sends
// from a UDP socket in one network namespace, over a veth pair, to a switch in another namespace.
// As usual, the client's stack leaves checksums to its device.
func BenchmarkRoundTrip(b *testing.B) {
	if err := ebpf.Probe(); err != nil {
		b.Skipf("eBPF is not available: %v", err)
	}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(err)
	defer func() { must(netns.Set(home)); home.Close() }()
	client, err := netns.New()
	must(err)
	defer client.Close()
	space, err := netns.New() // create the switch's namespace, and move this thread into it
	must(err)
	defer space.Close()
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "s1"}, PeerName: "h1"}))
	sw, err := netlink.LinkByName("s1")
	must(err)
	must(netlink.LinkSetUp(sw))
	peer, err := netlink.LinkByName("h1")
	must(err)
	must(netlink.LinkSetNsFd(peer, int(client)))

	k := &kernel{interpreter: newInterpreter(&testing.T{}, 128, nil)}
	k.device, err = ebpf.New(ebpf.Options{CPUPort: controllerPort, Log: slog.New(slog.DiscardHandler)})
	must(err)
	defer k.device.Close()
	must(k.device.Commit(k.program))
	must(k.device.AddPort(target.Port{Number: 1, Iface: "s1"}))
	must(netns.Set(client))
	peer, err = netlink.LinkByName("h1")
	must(err)
	address, err := netlink.ParseAddr("10.0.1.1/16")
	must(err)
	must(netlink.AddrAdd(peer, address))
	must(netlink.LinkSetUp(peer))
	must(netlink.NeighSet(&netlink.Neigh{LinkIndex: peer.Attrs().Index, IP: net.IPv4(10, 0, 100, 1),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: netlink.NUD_PERMANENT}))
	s := &scenario{open: func(*testing.T, int) device { return k }}
	for _, line := range []string{"switch", "port 1 host principal=1 address=10.0.1.1", "address 10.0.100.1", "chain 1 role=HEAD epoch=1 head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
		"route 10.0.1.0/24 port=1 mac=" + peer.Attrs().HardwareAddr.String(), "slot 0x01000001 5"} {
		must(s.command(&testing.T{}, nil, line))
	}
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.0.100.1:20035")))
	must(err)
	defer conn.Close()
	request, err := (&wire.Packet{Op: wire.Read, Key: 0x01000001}).Marshal(128)
	must(err)
	buffer, times := make([]byte, 2048), make([]time.Duration, 0, b.N)
	must(conn.SetDeadline(time.Now().Add(time.Minute)))
	for b.Loop() {
		start := time.Now()
		_, err := conn.Write(request)
		must(err)
		_, err = conn.Read(buffer)
		must(err)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "µs-p50")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, "µs-p99")
}
