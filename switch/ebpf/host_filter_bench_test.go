package ebpf

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// BenchmarkHostFilter measures what sharing an interface costs a packet, in nanoseconds, by BPF_PROG_TEST_RUN: the filter
// alone, as it stands before a program, and a program that does nothing.
func BenchmarkHostFilter(b *testing.B) {
	needKernel(b)
	tcp := udpFrame(1000, 80, nil, 0)
	tcp[14+9] = 6
	for _, h := range []hook{hookTC, hookXDP} {
		for _, p := range []struct {
			name string
			port uint16
		}{{"nothing", 0}, {"filter", 20035}} {
			t := newTranslator(&plan{}, h, fds{}, settings{onlyUDP: p.port}) // no CPU port: the kernel runs it on the loopback interface, which stands for that
			code := t.function("filter", func() {
				t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
				t.hostFilter()
				t.Bind("ingress.drop")
				t.verdict(verdictDrop)
			})
			insns, err := code.Assemble(true)
			if err != nil {
				b.Fatal(err)
			}
			prog, err := load("filter", h, insns)
			if err != nil {
				b.Fatal(err)
			}
			defer prog.Close()
			for name, frame := range map[string][]byte{"TCP": tcp, "other UDP": udpFrame(1000, 53, nil, 0), "NetCRAQ": udpFrame(1000, 20035, nil, 0)} {
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
