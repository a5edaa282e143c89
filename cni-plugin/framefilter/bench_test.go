package framefilter

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// BenchmarkFrames measures the filter's cost for a packet, in nanoseconds, with BPF_PROG_TEST_RUN.
// The packet has no unfinished checksum or segments, like most packets that a pod sends.
func BenchmarkFrames(b *testing.B) {
	if err := Supported(); err != nil {
		b.Skipf("skipped: %v", err)
	}
	program, err := loaded()
	if err != nil {
		b.Fatal(err)
	}
	for name, protocol := range map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP} {
		frame := udptest.Packet{Protocol: protocol, EthernetDst: make(net.HardwareAddr, 6),
			EthernetSrc: make(net.HardwareAddr, 6), Payload: make([]byte, 64),
			Src: netip.MustParseAddrPort("10.1.0.2:1000"), Dst: netip.MustParseAddrPort("10.2.0.2:80")}.Frame()
		b.Run(name, func(b *testing.B) {
			_, each, err := program.Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
		})
	}
}
