package p4src

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
)

// BenchmarkPackets measures the interpreter's time per packet, for each kind of packet that a chain
// processes. Client requests come from the host at port 1, and chain packets come in at port 2.
// Request numbers and versions increase, so every write is new.
func BenchmarkPackets(b *testing.B) {
	stamped := map[string]string{"flags": "STAMPED", "epoch": "1", "version": "1.20903", "session": "3", "request": "0x51a7e3b9"}
	unordered := map[string]string{"session": "3", "request": "0x51a7e3b9"}
	reply := map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.20903", "session": "3", "request": "0x51a7e3b9"}
	for _, profile := range []int{128, 8192} {
		for _, p := range []struct {
			name, role, port, op string
			fields               map[string]string
			dirty                bool
			out                  int
		}{
			{"read_clean", "HEAD", "1", "READ", nil, false, 1},
			{"read_dirty", "HEAD", "1", "READ", nil, true, 1},
			{"read_dirty_tail", "TAIL", "2", "READ", map[string]string{"flags": "DIRTY_FORWARDED"}, false, 1},
			{"read_reply_passing", "HEAD", "2", "READ_REPLY", map[string]string{"from": "10.0.100.1:20035", "to": "10.0.1.1:4000", "status": "OK", "epoch": "1", "version": "1.1"}, false, 1},
			{"write_head", "HEAD", "1", "WRITE", unordered, false, 1},
			{"write_replica", "REPLICA", "2", "WRITE", stamped, false, 1},
			{"write_tail", "TAIL", "2", "WRITE", stamped, false, 1},
			{"write_reply_passing", "REPLICA", "2", "WRITE_REPLY", reply, false, 1},
		} {
			b.Run(fmt.Sprintf("%d/%s", profile, p.name), func(b *testing.B) {
				d := newInterpreter(&testing.T{}, profile, nil)
				s := benchmarkedChain(b, d, profile, p.role)
				fields := map[string]string{"key": "0x01000001"}
				if p.dirty {
					send(b, s, d, "WRITE", fields)
				}
				maps.Copy(fields, p.fields)
				frame, err := s.frame([]string{"send", p.port, p.op}, fields)
				if err != nil {
					b.Fatal(err)
				}
				request := bytes.Index(frame, []byte{0x51, 0xa7, 0xe3, 0xb9})
				version := bytes.Index(frame, []byte{0, 0, 0, 0, 0x51, 0xa7})
				port, n := uint32(number(p.port)), uint32(1)
				var buffer interp.Buffer
				b.ReportAllocs()
				for b.Loop() {
					if request >= 0 {
						binary.BigEndian.PutUint32(frame[request:], n)
					}
					if version >= 0 {
						binary.BigEndian.PutUint32(frame[version+2:], n)
					}
					n++
					d.pipeline.ProcessInto(&buffer, time.Second, port, frame)
					if len(buffer.Outs) != p.out {
						b.Fatalf("%d frames came out, and not %d", len(buffer.Outs), p.out)
					}
				}
			})
		}
	}
}

// benchmarkedChain makes the device a member of a chain, with a live lease.
func benchmarkedChain(b testing.TB, d *interpreter, profile int, role string) *scenario {
	b.Helper()
	s := &scenario{open: func(*testing.T, int) device { return d }}
	for _, line := range []string{fmt.Sprintf("switch profile=%d", profile), "port 1 host principal=1 address=10.0.1.1", "port 2 fabric", "address 10.0.100.1", "lease 3 1",
		"chain 1 role=" + role + " epoch=1 lease head=10.0.200.2 next=10.0.200.3 tail=10.0.200.3 service=10.0.100.1",
		"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "slot 0x01000001 5"} {
		if err := s.command(&testing.T{}, nil, line); err != nil {
			b.Fatal(err)
		}
	}
	lease, err := s.frame([]string{"send", "510", "LEASE"}, map[string]string{"key": "0x01000000", "epoch": "1", "request": "4000000000"})
	if err != nil {
		b.Fatal(err)
	}
	d.pipeline.Process(time.Second, controllerPort, append([]byte{0, 0x40}, lease...))
	return s
}

// send sends a packet from the host at port 1.
func send(b testing.TB, s *scenario, d *interpreter, op string, fields map[string]string) {
	b.Helper()
	frame, err := s.frame([]string{"send", "1", op}, fields)
	if err != nil {
		b.Fatal(err)
	}
	d.pipeline.Process(time.Second, 1, frame)
}
