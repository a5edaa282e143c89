package p4src

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/kernelload"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// BenchmarkKernel measures the kernel's time for one packet (BPF_PROG_TEST_RUN), without devices
// and sockets. The packets are, for example, a clean read at a member and a write at the head. For
// comparison, it measures a program at the same hook that only swaps the frame's addresses.
func BenchmarkKernel(b *testing.B) {
	if err := ebpf.Probe(); err != nil {
		b.Skipf("eBPF is not available: %v", err)
	}
	for _, hook := range []string{"tc", "xdp"} {
		b.Run(hook+"/reflector", func(b *testing.B) {
			reflector, err := kernelload.Reflector(hook == "xdp")
			if err != nil {
				b.Fatal(err)
			}
			defer reflector.Close()
			frame := make([]byte, 82)
			frame[12], frame[23] = 8, 17 // these bytes make the frame UDP over IPv4
			b.ResetTimer()
			_, each, err := reflector.Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each)/float64(time.Nanosecond), "ns/packet")
		})
		for _, profile := range []int{128, 8192} {
			for _, p := range benchmarked {
				for _, special := range []bool{false, true} {
					name := p.name
					if !special {
						name += "_general" // the program before specialisation, in which every table is a map
					}
					b.Run(fmt.Sprintf("%s/%d/%s", hook, profile, name), func(b *testing.B) {
						benchmarkKernel(b, hook, profile, p, special)
					})
				}
			}
		}
	}
}

type benchmarkedPacket struct {
	name, port, op string
	fields         map[string]string
	leased         bool   // whether the chain requires leases and this switch has a lease
	role           string // role of the switch; empty means HEAD
}

// benchmarked lists the packets of BenchmarkKernel, in the format of scenario lines. Some are
// requests that the switch answers or starts, and others are packets that pass through the switch.
var benchmarked = []benchmarkedPacket{
	{"READ", "1", "READ", nil, false, ""},
	{"READ_leased", "1", "READ", nil, true, ""},
	{"WRITE", "1", "WRITE", nil, false, ""},
	{"WRITE_stamped_replica", "2", "WRITE", stampedWrite, false, "REPLICA"},
	{"WRITE_stamped_tail", "2", "WRITE", stampedWrite, false, "TAIL"},
	// No slot has version 9.9, so the head forwards the CAS to the tail.
	{"CAS_failing", "1", "CAS", map[string]string{"version": "9.9"}, false, ""},
	{"READ_passing", "1", "READ", map[string]string{"to": "10.0.200.3:20035"}, false, ""},
	{"READ_REPLY_passing", "2", "READ_REPLY", map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.1"}, false, ""},
	{"WRITE_REPLY_passing", "2", "WRITE_REPLY", map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.1", "session": "3", "request": "1"}, false, ""},
	{"ACK", "2", "ACK", map[string]string{"epoch": "1", "version": "1.1", "session": "3", "request": "1"}, false, ""},
	{"UDP_passing", "1", "READ", map[string]string{"to": "10.0.200.3:4000", "from": "10.0.1.1:4001"}, false, ""},
}

var stampedWrite = map[string]string{"flags": "STAMPED", "epoch": "1", "version": "1.1", "session": "3", "request": "1"}

// BenchmarkProfile prints the time, in nanoseconds, for each node of the program's control flow on
// the packet's path. It prints the time until the node and the time in the node.
func BenchmarkProfile(b *testing.B) {
	if err := ebpf.Probe(); err != nil {
		b.Skipf("eBPF is not available: %v", err)
	}
	for _, hook := range []string{"tc", "xdp"} {
		for _, profile := range []int{128, 8192} {
			for _, p := range benchmarked {
				b.Run(fmt.Sprintf("%s/%d/%s", hook, profile, p.name), func(b *testing.B) {
					k, frame := benchmarkedSwitch(b, profile, p)
					defer k.device.Close()
					if err := ebpf.Specialise(k.device); err != nil {
						b.Fatal(err)
					}
					steps, err := ebpf.ProfileOf(k.device, hook == "xdp", uint32(number(p.port)), frame,
						max(b.N, 20_000))
					if err != nil {
						b.Fatal(err)
					}
					if b.N == 1 { // the first run, which only determines b.N
						return
					}
					before, text := 0.0, ""
					for _, s := range steps {
						text += fmt.Sprintf("\n%7.1f %+6.1f  %s", s.Until, s.Until-before, s.Name)
						before = s.Until
					}
					fmt.Println(text)
				})
			}
		}
	}
}

const assigned = 7 // EVENT_WRITE_ASSIGNED of events.p4

// BenchmarkCPUs measures how many packets per microsecond one CPU and two CPUs process, and the
// ratio of the two. The packets are reads of different keys and new writes. The writes go to
// different keys by different sessions, to neighbouring slots by neighbouring sessions, or to one
// key. Each case runs with one lock for all registers, and with lock striping.
func BenchmarkCPUs(b *testing.B) {
	if err := ebpf.Probe(); err != nil {
		b.Skipf("eBPF is not available: %v", err)
	}
	if runtime.NumCPU() < 2 {
		b.Skip("there is one CPU")
	}
	for _, c := range []struct{ name, op, key, slot, session string }{
		{"READ", "READ", "0x01000002", "4001", "40"},
		{"WRITE", "WRITE", "0x01000002", "4001", "40"},
		{"WRITE_next_session", "WRITE", "0x01000002", "4001", "4"},
		{"WRITE_next_slot", "WRITE", "0x01000002", "6", "40"},
		{"WRITE_one_key", "WRITE", "0x01000001", "4001", "40"},
	} {
		for _, stripes := range []bool{false, true} {
			locks := "lock"
			if stripes {
				locks = "stripes"
			}
			b.Run(c.name+"/"+locks, func(b *testing.B) {
				k, first := benchmarkedSwitch(b, 128, benchmarkedPacket{op: c.op, port: "1",
					fields: map[string]string{"session": "3", "request": "1"}})
				defer k.device.Close()
				s := &scenario{device: k, profile: 128}
				for _, line := range []string{"slot 0x01000002 " + c.slot, "lease 3-4 1", "lease 40 1"} {
					if err := s.command(&testing.T{}, nil, line); err != nil {
						b.Fatal(err)
					}
				}
				second, err := s.frame([]string{"send", "1", c.op},
					map[string]string{"key": c.key, "session": c.session, "request": "1"})
				if err != nil {
					b.Fatal(err)
				}
				if err := ebpf.Specialise(k.device); err != nil {
					b.Fatal(err)
				}
				if err := ebpf.Stripe(k.device, stripes); err != nil {
					b.Fatal(err)
				}
				count := 0
				if c.op == "WRITE" {
					count = requestAt(b, s)
				}
				b.ResetTimer()
				var one, two, times []float64
				// measure one CPU and two CPUs alternately, so that both see the same load of the
				// machine
				for range 5 {
					rate, err := ebpf.BenchmarkCPUs(k.device, 1, [][]byte{first}, count, b.N)
					if err != nil {
						b.Fatal(err)
					}
					both, err := ebpf.BenchmarkCPUs(k.device, 1, [][]byte{first, second}, count, b.N)
					if err != nil {
						b.Fatal(err)
					}
					one, two, times = append(one, rate), append(two, both), append(times, both/rate)
				}
				if n, err := k.events(); err != nil || c.op == "WRITE" && n[assigned] < uint64(10*b.N) {
					b.Fatalf("%d writes were new (%v)", n[assigned], err)
				}
				for _, list := range [][]float64{one, two, times} {
					slices.Sort(list)
				}
				b.ReportMetric(one[2], "packets/us,one")
				b.ReportMetric(two[2], "packets/us,two")
				b.ReportMetric(times[2], "times")
				b.ReportMetric(times[0], "least")
				b.ReportMetric(times[4], "most")
			})
		}
	}
}

// requestAt returns the position of the request number in a frame.
func requestAt(b *testing.B, s *scenario) int {
	frame, err := s.frame([]string{"send", "1", "WRITE"},
		map[string]string{"key": "0x01000001", "session": "3", "request": "0x51a7e3b9"})
	if err != nil {
		b.Fatal(err)
	}
	at := bytes.Index(frame, []byte{0x51, 0xa7, 0xe3, 0xb9})
	if at < 0 {
		b.Fatal("a frame without its request")
	}
	return at
}

func benchmarkKernel(b *testing.B, hook string, profile int, packet benchmarkedPacket, special bool) {
	k, frame := benchmarkedSwitch(b, profile, packet)
	defer k.device.Close()
	if special {
		if err := ebpf.Specialise(k.device); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	each, err := ebpf.Benchmark(k.device, hook == "xdp", uint32(number(packet.port)), frame, b.N)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(each)/float64(time.Nanosecond), "ns/packet")
}

// benchmarkedSwitch returns the switch that processes the packet, and the packet's frame. The
// switch is the head of a chain, or has the role that the packet specifies.
func benchmarkedSwitch(b *testing.B, profile int, packet benchmarkedPacket) (*kernel, []byte) {
	t := &testing.T{}
	k := newKernel(t, profile, ebpf.HookAuto)
	s := &scenario{open: func(*testing.T, int) device { return k }}
	lease := ""
	if packet.leased {
		lease = " lease"
	}
	for _, line := range []string{fmt.Sprintf("switch profile=%d", profile), "port 1 host principal=1 address=10.0.1.1", "port 2 fabric", "address 10.0.100.1",
		"peer none", "peer 1 2 predecessor tail member", "peer 1 3 member", "peer 2 3 member", "peer 3 3 member",
		"chain 1 role=" + cmp.Or(packet.role, "HEAD") + " epoch=1" + lease + " head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
		"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "slot 0x01000001 5"} {
		if err := s.command(t, nil, line); err != nil {
			b.Fatal(err)
		}
	}
	if packet.leased {
		err := k.device.Pipeline().WriteRegister("NetcraqIngress.pipeline.chain.lease_expiry", 1, bytes.Repeat([]byte{0x7f}, 8))
		if err != nil {
			b.Fatal(err)
		}
	}
	fields := map[string]string{"key": "0x01000001"}
	maps.Copy(fields, packet.fields)
	frame, err := s.frame([]string{"send", packet.port, packet.op}, fields)
	if err != nil {
		b.Fatal(err)
	}
	return k, frame
}
