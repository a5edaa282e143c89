package compile

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// BenchmarkHostFilter measures the time per packet, in nanoseconds, that it costs to share an
// interface with the host. It runs the filter in front of a program that does nothing
// (BPF_PROG_TEST_RUN).
func BenchmarkHostFilter(b *testing.B) {
	for _, h := range []emit.Hook{emit.TC, emit.XDP} {
		for _, p := range []struct {
			name string
			port uint16
		}{{"nothing", 0}, {"filter", 20035}} {
			// There is no CPU port, because the kernel runs the program on the loopback interface,
			// which stands for the CPU port.
			t := newTranslator(&memory.Plan{}, h, emit.Maps{}, emit.Settings{OnlyUDP: p.port})
			filter := t.WriteFunction("filter", func() {
				t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
				t.hostFilter()
				t.Bind("ingress.drop")
				t.DropFrame(emit.VerdictDrop)
			})
			insns, err := filter.Assemble(true)
			if err != nil {
				b.Fatal(err)
			}
			kind := map[emit.Hook]ebpf.ProgramType{emit.TC: ebpf.SchedCLS, emit.XDP: ebpf.XDP}[h]
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, Instructions: insns,
				License: "GPL"})
			if errors.Is(err, unix.EPERM) {
				b.Skip("eBPF needs root")
			}
			if err != nil {
				b.Fatal(err)
			}
			defer prog.Close()
			for name, frame := range map[string][]byte{
				"TCP": benchFrame(6, 80), "other UDP": benchFrame(17, 53),
				"NetCRAQ": benchFrame(17, 20035)} {
				b.Run(h.String()+"/"+p.name+"/"+name, func(b *testing.B) {
					_, each, err := prog.Benchmark(frame, b.N, nil)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
				})
			}
		}
	}
}

// benchFrame returns a frame with an IP packet of a protocol and 16 bytes of payload.
func benchFrame(protocol uint8, to uint16) []byte {
	return udptest.Packet{EthernetDst: net.HardwareAddr{2, 0, 0, 0, 0, 0},
		EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9},
		Src:         netip.MustParseAddrPort("10.9.0.2:1000"),
		Dst:         netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), to),
		Protocol:    protocol, Payload: make([]byte, 16)}.Frame()
}
