package ingressfilter

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// BenchmarkFilter measures the filter's cost for a packet, in nanoseconds, with BPF_PROG_TEST_RUN.
// For comparison, it also measures the previous version's filter and a program that does nothing.
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

// BenchmarkStack measures how long a node takes to forward a packet from a pod's interface to the
// next node, which drops it. It measures alternately without and with the stack filter. Only the
// fastest measurement counts, because on a busy machine the others include other work.
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

// BenchmarkPods measures the throughput of an ordinary pod to another node: TCP with the kernel's
// offloads, and UDP in frames that the kernel splits (UDP_SEGMENT). It measures alternately with
// and without the frame filter at the pod's interface. Each result is the median of these
// measurements.
func BenchmarkPods(b *testing.B) {
	if err := framefilter.Supported(); err != nil {
		b.Skipf("skipped: %v", err)
	}
	for _, network := range []string{"tcp", "udp"} {
		b.Run(network, func(b *testing.B) {
			r := newRoute(b)
			seen := map[string][]float64{}
			for b.Loop() {
				var turn [2]float64
				for i, on := range []bool{false, true} {
					r.guard(on)
					turn[i] = r.bulk(b, network, 300*time.Millisecond) / 1e6
				}
				for unit, value := range map[string]float64{"MB/s-without": turn[0], "MB/s-with": turn[1], "with/without": turn[1] / turn[0]} {
					seen[unit] = append(seen[unit], value)
				}
			}
			for unit, all := range seen {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], unit)
			}
		})
	}
}

// bulk sends from the pod to the victim for a while. It returns how many bytes a second have
// arrived.
func (r *route) bulk(b *testing.B, network string, long time.Duration) float64 {
	b.Helper()
	var arrived atomic.Int64
	sink, address := r.sink(b, network, &arrived)
	defer sink.Close()
	var c net.Conn
	r.pod.Do(func() (err error) { c, err = net.Dial(network, address); return err })
	defer c.Close()
	chunk := make([]byte, 1<<18)
	if u, ok := c.(*net.UDPConn); ok {
		chunk = chunk[:40*1400]
		raw, err := u.SyscallConn()
		check(b, err)
		var set error
		check(b, raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1400)
		}))
		check(b, set)
	}
	began := time.Now()
	for time.Since(began) < long {
		_, err := c.Write(chunk)
		check(b, err)
	}
	return float64(arrived.Load()) / time.Since(began).Seconds()
}

// sink receives at the victim and counts the bytes that arrive.
func (r *route) sink(b *testing.B, network string, arrived *atomic.Int64) (sink io.Closer, address string) {
	b.Helper()
	count := func(c io.Reader) {
		for chunk := make([]byte, 1<<18); ; {
			n, err := c.Read(chunk)
			arrived.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	r.victim.Do(func() error {
		if network == "udp" {
			c, err := net.ListenPacket("udp", victimAddr.String()+":0")
			check(b, err)
			sink, address = c, c.LocalAddr().String()
			go count(c.(*net.UDPConn))
			return nil
		}
		l, err := net.Listen("tcp", victimAddr.String()+":0")
		check(b, err)
		sink, address = l, l.Addr().String()
		go func() {
			if c, err := l.Accept(); err == nil {
				count(c)
				c.Close()
			}
		}()
		return nil
	})
	return sink, address
}
