package ingressfilter

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// BenchmarkFilter measures what the filter costs a packet, in nanoseconds, by BPF_PROG_TEST_RUN,
// beside the one before and a program that does nothing.
func BenchmarkFilter(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("skipped: needs root, for eBPF")
	}
	rules := Rules{Port: netcraq, Destination: vxlan, Untagged: true}
	pods := rules
	pods.Sources, pods.Guest = []netip.Addr{podAddr, netip.MustParseAddr("fd00:1::2")}, true
	frame := func(protocol uint8, port uint16) []byte {
		return udptest.Packet{Protocol: protocol, EthernetDst: make(net.HardwareAddr, 6),
			EthernetSrc: make(net.HardwareAddr, 6), Payload: make([]byte, 64),
			Src: netip.MustParseAddrPort("10.1.0.2:1000"),
			Dst: netip.AddrPortFrom(netip.MustParseAddr("10.2.0.2"), port)}.Frame()
	}
	frames := []struct {
		name  string
		frame []byte
	}{{"TCP", frame(unix.IPPROTO_TCP, 80)}, {"other UDP", frame(unix.IPPROTO_UDP, 53)},
		{"NetCRAQ", frame(unix.IPPROTO_UDP, netcraq)}}
	assembled := func(code asm.Instructions) func() (*ebpf.Program, error) {
		return func() (*ebpf.Program, error) {
			return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
				Instructions: code})
		}
	}
	for _, p := range []struct {
		name string
		load func() (*ebpf.Program, error)
	}{{"nothing", assembled(asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()})},
		{"former", assembled(rules.former())}, {"now", func() (*ebpf.Program, error) { return rules.program(name) }},
		{"a pod's", func() (*ebpf.Program, error) { return pods.program(name) }}} {
		prog, err := p.load()
		if err != nil {
			b.Fatal(err)
		}
		defer prog.Close()
		for _, f := range frames {
			b.Run(p.name+"/"+f.name, func(b *testing.B) {
				_, each, err := prog.Benchmark(f.frame, b.N, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
			})
		}
	}
}

// BenchmarkStack measures what it takes a node to forward a packet from a pod, all of the way from
// the pod's interface to the next node, which drops it: without the stack's filter and with it, in
// turns. What counts is the fastest of the turns, since nothing but the way itself is in it on a
// busy machine.
func BenchmarkStack(b *testing.B) {
	const turn = 1000
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		b.Run(map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}[protocol],
			func(b *testing.B) {
				nobody := netip.MustParseAddr("10.2.0.77")
				var routes [2]*route
				var frames [2][]byte
				fastest := [2]time.Duration{time.Hour, time.Hour}
				for i := range routes {
					r := newRoute(b)
					check(b, r.node.Link.NeighAdd(&netlink.Neigh{LinkIndex: r.node.Index("out"),
						State: netlink.NUD_PERMANENT, IP: nobody.AsSlice(),
						HardwareAddr: r.victim.MAC("eth0")}))
					p := r.packet(1000, nobody, 53)
					p.Protocol = protocol
					routes[i], frames[i] = r, p.Frame()
				}
				routes[1].node.Do(func() error {
					return errors.Join(ApplySwitch(netcraq, "ncqnode"),
						ApplyTunnels(Tunnels{Port: vxlan, Ends: []TunnelEnd{{nodeAddr, "out"}}}))
				})
				for b.Loop() {
					for i, r := range routes {
						began := time.Now()
						for range turn {
							r.send(frames[i])
						}
						fastest[i] = min(fastest[i], time.Since(began))
					}
				}
				b.ReportMetric(float64(fastest[0].Nanoseconds())/turn, "ns/packet-without")
				b.ReportMetric(float64(fastest[1].Nanoseconds())/turn, "ns/packet-with")
			})
	}
}
