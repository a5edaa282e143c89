package ingressfilter

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// BenchmarkFilter measures what the filter costs a packet, in nanoseconds, by BPF_PROG_TEST_RUN, beside the one before and
// a program that does nothing.
func BenchmarkFilter(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("skipped: needs root, for eBPF")
	}
	rules := Rules{Ports: []uint16{netcraq}, Destinations: []uint16{vxlan}, Untagged: true}
	sources := rules
	sources.Sources = []netip.Prefix{netip.MustParsePrefix("10.1.0.2/32")}
	udp := func(port uint16) []byte {
		return udptest.Packet{EthernetDst: make(net.HardwareAddr, 6), EthernetSrc: make(net.HardwareAddr, 6), Payload: make([]byte, 64),
			Src: netip.MustParseAddrPort("10.1.0.2:1000"), Dst: netip.AddrPortFrom(netip.MustParseAddr("10.2.0.2"), port)}.Frame()
	}
	tcp := udp(80)
	tcp[14+9] = 6
	frames := []struct {
		name  string
		frame []byte
	}{{"TCP", tcp}, {"other UDP", udp(53)}, {"NetCRAQ", udp(netcraq)}}
	for _, p := range []struct {
		name string
		code asm.Instructions
	}{{"nothing", asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()}}, {"former", rules.former()}, {"now", rules.instructions()}, {"now, with sources", sources.instructions()}} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: p.code})
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
