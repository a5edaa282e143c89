package p4src

import (
	"fmt"
	"maps"
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
	for _, hook := range []string{"tc", "xdp"} {
		b.Run(hook+"/reflector", func(b *testing.B) {
			spec := &ciliumebpf.ProgramSpec{Type: ciliumebpf.SchedCLS, License: "GPL", Instructions: reflectorProgram(hook)}
			if hook == "xdp" {
				spec.Type = ciliumebpf.XDP
			}
			reflector, err := ciliumebpf.NewProgram(spec)
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
			for _, p := range benchmarked {
				b.Run(fmt.Sprintf("%s/%d/%s", hook, profile, p.name), func(b *testing.B) { benchmarkKernel(b, hook, profile, p) })
			}
		}
	}
}

// benchmarked are the packets of BenchmarkKernel, as a line of a scenario says them: what the switch answers or starts, and what passes it.
var benchmarked = []struct {
	name, port, op string
	fields         map[string]string
}{
	{"READ", "1", "READ", nil},
	{"WRITE", "1", "WRITE", nil},
	{"READ_passing", "1", "READ", map[string]string{"to": "10.0.200.3:20035"}},
	{"READ_REPLY_passing", "2", "READ_REPLY", map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.1"}},
	{"UDP_passing", "1", "READ", map[string]string{"to": "10.0.200.3:4000", "from": "10.0.1.1:4001"}},
}

func benchmarkKernel(b *testing.B, hook string, profile int, packet struct {
	name, port, op string
	fields         map[string]string
}) {
	t := &testing.T{}
	k := newKernel(t, profile, ebpf.HookAuto)
	defer k.device.Close()
	s := &scenario{open: func(*testing.T, int) device { return k }}
	for _, line := range []string{fmt.Sprintf("switch profile=%d", profile), "port 1 host principal=1 address=10.0.1.1", "port 2 fabric", "address 10.0.100.1",
		"chain 1 role=HEAD epoch=1 head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
		"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "slot 0x01000001 5"} {
		if err := s.command(t, nil, line); err != nil {
			b.Fatal(err)
		}
	}
	fields := map[string]string{"key": "0x01000001"}
	maps.Copy(fields, packet.fields)
	frame, err := s.frame([]string{"send", packet.port, packet.op}, fields)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	each, err := ebpf.Benchmark(k.device, hook == "xdp", uint32(number(packet.port)), frame, b.N)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(each)/float64(time.Nanosecond), "ns/packet")
}

// reflectorProgram swaps the Ethernet and IPv4 addresses, and the UDP ports, of a frame.
func reflectorProgram(hook string) asm.Instructions {
	var out asm.Instructions
	data := int16(76) // in struct __sk_buff; the end is behind it
	if hook == "xdp" {
		data = 0 // in struct xdp_md
	}
	out = append(out,
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word), asm.LoadMem(asm.R3, asm.R1, data+4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 42), asm.JGT.Reg(asm.R4, asm.R3, "drop"))
	swap := func(a, b int16, size asm.Size) {
		out = append(out, asm.LoadMem(asm.R4, asm.R2, a, size), asm.LoadMem(asm.R5, asm.R2, b, size), asm.StoreMem(asm.R2, a, asm.R5, size), asm.StoreMem(asm.R2, b, asm.R4, size))
	}
	swap(0, 6, asm.Word)
	swap(4, 10, asm.Half)
	swap(26, 30, asm.Word)
	swap(34, 36, asm.Half)
	if hook == "xdp" {
		return append(out, asm.Mov.Imm(asm.R0, 3), asm.Return(), asm.Mov.Imm(asm.R0, 1).WithSymbol("drop"), asm.Return()) // XDP_TX, XDP_DROP
	}
	return append(out, asm.LoadMem(asm.R1, asm.R1, 40, asm.Word), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return())
}
