package p4src

import (
	"testing"
	"time"

	ciliumebpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/ebpf"
)

// BenchmarkKernel is the time that the kernel's part takes for one packet (BPF_PROG_TEST_RUN), without devices and sockets: a clean read at a member, a write at
// the head, and as the limit a program at the same hook that only swaps the addresses of the frame.
func BenchmarkKernel(b *testing.B) {
	if err := ebpf.Probe(); err != nil {
		b.Skipf("eBPF is not available: %v", err)
	}
	b.Run("reflector", func(b *testing.B) {
		reflector, err := ciliumebpf.NewProgram(&ciliumebpf.ProgramSpec{Type: ciliumebpf.SchedCLS, License: "GPL", Instructions: reflectorProgram()})
		if err != nil {
			b.Fatal(err)
		}
		defer reflector.Close()
		b.ResetTimer()
		_, each, err := reflector.Benchmark(make([]byte, 82), b.N, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(each)/float64(time.Nanosecond), "ns/packet")
	})
	for _, profile := range []int{128, 8192} {
		for _, packet := range []string{"READ", "WRITE"} {
			b.Run(map[int]string{128: "128/", 8192: "8192/"}[profile]+packet, func(b *testing.B) {
				t := &testing.T{}
				k := newKernel(t, profile)
				defer k.device.Close()
				s := &scenario{open: func(*testing.T, int) device { return k }}
				for _, line := range []string{"switch profile=" + map[int]string{128: "128", 8192: "8192"}[profile], "port 2 fabric", "address 10.0.100.1",
					"chain 1 role=HEAD epoch=1 head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
					"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "slot 0x01000001 5"} {
					if err := s.command(t, nil, line); err != nil {
						b.Fatal(err)
					}
				}
				frame, err := s.frame([]string{"send", "1", packet}, map[string]string{"key": "0x01000001"})
				if err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				each, err := ebpf.Benchmark(k.device, 1, frame, b.N)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(each)/float64(time.Nanosecond), "ns/packet")
			})
		}
	}
}

// reflectorProgram swaps the Ethernet and IPv4 addresses, and the UDP ports, of a frame.
func reflectorProgram() asm.Instructions {
	var out asm.Instructions
	out = append(out,
		asm.LoadMem(asm.R2, asm.R1, 76, asm.Word), asm.LoadMem(asm.R3, asm.R1, 80, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 42), asm.JGT.Reg(asm.R4, asm.R3, "drop"))
	swap := func(a, b int16, size asm.Size) {
		out = append(out, asm.LoadMem(asm.R4, asm.R2, a, size), asm.LoadMem(asm.R5, asm.R2, b, size), asm.StoreMem(asm.R2, a, asm.R5, size), asm.StoreMem(asm.R2, b, asm.R4, size))
	}
	swap(0, 6, asm.Word)
	swap(4, 10, asm.Half)
	swap(26, 30, asm.Word)
	swap(34, 36, asm.Half)
	return append(out, asm.LoadMem(asm.R1, asm.R1, 40, asm.Word), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return())
}
