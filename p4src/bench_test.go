package p4src

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
)

// BenchmarkRead is a clean read at a member, on the interpreter: one frame in, one out.
func BenchmarkRead(b *testing.B) { benchmark(b, []string{"2", "READ"}) }

// BenchmarkWrite is a write at the head of a chain of three or more.
func BenchmarkWrite(b *testing.B) { benchmark(b, []string{"1", "WRITE"}) }

func benchmark(b *testing.B, packet []string) {
	for _, profile := range []int{128, 8192} {
		b.Run(map[int]string{128: "128", 8192: "8192"}[profile], func(b *testing.B) {
			t := &testing.T{}
			d := newInterpreter(t, profile, nil)
			s := &scenario{open: func(*testing.T, int) device { return d }}
			for _, line := range []string{"switch profile=" +
				b.Name()[len(b.Name())-len(map[int]string{128: "128", 8192: "8192"}[profile]):], "port 1 host principal=1 address=10.0.1.1", "port 2 fabric", "address 10.0.100.1",
				"chain 1 role=HEAD epoch=1 lease head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
				"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "slot 0x01000001 5"} {
				if err := s.command(t, nil, line); err != nil {
					b.Fatal(err)
				}
			}
			lease, err := s.frame([]string{"send", "510", "LEASE"}, map[string]string{"key": "0x01000000", "epoch": "1", "request": "4000000000"})
			if err != nil {
				b.Fatal(err)
			}
			d.pipeline.Process(time.Second, controllerPort, append([]byte{0, 0x40}, lease...))
			frame, err := s.frame([]string{"send", packet[0], packet[1]}, map[string]string{"key": "0x01000001"})
			if err != nil {
				b.Fatal(err)
			}
			var buffer interp.Buffer
			b.ReportAllocs()
			for b.Loop() {
				d.pipeline.ProcessInto(&buffer, time.Second, 1, frame)
				if len(buffer.Outs) != 1 {
					b.Fatalf("%d frames came out", len(buffer.Outs))
				}
			}
		})
	}
}
