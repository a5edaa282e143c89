package p4src

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// TestTargetsServeDuringWrites sends a real switch the same read repeatedly, one at a time.
// Meanwhile a controller writes entries and groups, and reads registers and counters. Every read
// must be answered with the right value.
func TestTargetsServeDuringWrites(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces and raw sockets")
	}
	for _, target := range realTargets {
		t.Run(target.name, func(t *testing.T) {
			p := startTarget(t, target.command(t), 128).(*process)
			s := &scenario{device: p, profile: 128}
			for _, line := range fuzzConfiguration("HEAD_TAIL") {
				check(t, s.command(t, nil, line))
			}
			write := wire.Packet{Op: wire.Write, Session: 1, Request: 1, Key: 0x01000001, Value: []byte("steady")}
			answered := false
			for range 3 { // retry, because BMv2 may still be busy loading its program
				out, err := p.send(1, queryFrame(t, write))
				check(t, err)
				answered = answered || len(out) > 0
			}
			if !answered {
				t.Fatal("writing the value that is read: no answer")
			}
			stop, done := make(chan struct{}), make(chan error, 1)
			var reads atomic.Int64
			go func() { done <- p.keepReading(t, stop, &reads) }()
			rounds := 0
			const enough = 100 // minimum number of reads; reads take longer on a busy machine
			for begin := time.Now(); len(done) == 0 && (time.Since(begin) < time.Second || rounds < 3 ||
				reads.Load() < enough && time.Since(begin) < 20*time.Second); rounds++ {
				// BMv2 does not support registers over P4Runtime
				p.disturb(t, s, uint64(rounds), target.name != "simple_switch_grpc")
			}
			close(stop)
			check(t, <-done)
			if reads.Load() < enough {
				t.Errorf("only %d reads during %d rounds of writes: they say little", reads.Load(), rounds)
			}
			t.Logf("%d reads answered during %d rounds of writes", reads.Load(), rounds)
		})
	}
}

// disturb does one round of the operations that controllers perform while packets pass. They must
// not change the answer to the read.
func (p *process) disturb(t *testing.T, s *scenario, round uint64, registers bool) {
	t.Helper()
	ctx := context.Background()
	key := 0x01010000 + round%1000
	for _, line := range []string{
		fmt.Sprintf("slot %#x %d", key, 100+round%1000),
		fmt.Sprintf("route 10.7.%d.0/24 port=2 mac=02:00:00:00:00:02", round%250),
		"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01",
		"chain 1 role=HEAD_TAIL epoch=3 head=10.0.200.1 next=10.0.200.3 tail=10.0.200.4 service=10.0.100.1 ack-group=7 reply-group=256",
		"slot 0x01000001 1",
		fmt.Sprintf("no-slot %#x", key),
	} {
		check(t, s.command(t, nil, line))
	}
	group := &v1.MulticastGroupEntry{MulticastGroupId: 257}
	for _, r := range []p4rt.Replica{{Port: 1, Instance: 2}, {Port: 2, Instance: uint32(1 + round%2)}} {
		group.Replicas = append(group.Replicas,
			&v1.Replica{PortKind: &v1.Replica_EgressPort{EgressPort: r.Port}, Instance: r.Instance})
	}
	check(t, p.client.Write(ctx, &v1.Update{Type: v1.Update_MODIFY,
		Entity: &v1.Entity{Entity: &v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &v1.PacketReplicationEngineEntry{
				Type: &v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: group},
			},
		}}}))
	if _, err := p.events(); err != nil {
		t.Fatal(err)
	}
	if registers {
		cells := 0
		all := &v1.Entity{Entity: &v1.Entity_RegisterEntry{RegisterEntry: &v1.RegisterEntry{RegisterId: registerID(t,
			"versions")}}}
		check(t, p.client.Read(ctx, func(*v1.Entity) error { cells++; return nil }, all))
		if cells < 1000 {
			t.Fatalf("only %d cells of the register versions were read", cells)
		}
	}
}

// keepReading sends a read through port 1, waits for its answer, and repeats this until stop is
// closed.
func (p *process) keepReading(t *testing.T, stop <-chan struct{}, reads *atomic.Int64) error {
	buffer := make([]byte, 65536)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		request := uint32(reads.Load() + 1)
		if _, err := unix.Write(p.sockets[1], queryFrame(t, wire.Packet{Op: wire.Read, Request: request,
			Key: 0x01000001})); err != nil {
			return fmt.Errorf("sending read %d: %w", request, err)
		}
		for sent := time.Now(); ; {
			n, from, err := unix.Recvfrom(p.sockets[1], buffer, unix.MSG_DONTWAIT)
			if err != nil {
				if time.Since(sent) > 2*time.Second {
					return fmt.Errorf("read %d was not answered", request)
				}
				// Waiting leaves the processor to the switch.
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(p.sockets[1]), Events: unix.POLLIN}}, 100)
				continue
			}
			if ll, _ := from.(*unix.SockaddrLinklayer); ll == nil || ll.Pkttype == unix.PACKET_OUTGOING ||
				n < 14 || binary.BigEndian.Uint16(buffer[12:]) == unix.ETH_P_IPV6 {
				continue
			}
			_, payload, err := wire.ParseFrame(buffer[:n])
			if err != nil {
				return fmt.Errorf("the answer to read %d: %w", request, err)
			}
			var a wire.Packet
			if err := a.Unmarshal(payload, 128); err != nil {
				return fmt.Errorf("the answer to read %d: %w", request, err)
			}
			if a.Op == wire.Notify { // the notification of the write, which was still under way
				continue
			}
			if a.Op != wire.ReadReply || a.Request != request || a.Status != wire.OK ||
				!bytes.Equal(a.Value, []byte("steady")) {
				return fmt.Errorf("read %d was answered with %v", request, a.String())
			}
			break
		}
		reads.Add(1)
	}
}

// queryFrame returns the frame of a client's query to the service address of chain 1, as the frame
// arrives at port 1.
func queryFrame(t *testing.T, q wire.Packet) []byte {
	t.Helper()
	payload, err := q.Marshal(128)
	check(t, err)
	f := wire.Frame{EthernetDst: [6]byte{2, 0, 0, 0, 0, 0xA}, EthernetSrc: [6]byte{2, 0, 0, 0, 0, 0xB},
		Src: netip.MustParseAddrPort("10.0.1.1:4000"),
		Dst: netip.MustParseAddrPort("10.0.100.1:20035")}
	frame, err := f.AppendTo(nil, payload)
	check(t, err)
	return frame
}

// registerID returns the id of a register of the 128-bit program, by its alias.
func registerID(t *testing.T, alias string) uint32 {
	t.Helper()
	_, text, err := Compiled(128)
	check(t, err)
	var info configv1.P4Info
	check(t, prototext.Unmarshal(text, &info))
	for _, r := range info.Registers {
		if r.Preamble.Alias == alias {
			return r.Preamble.Id
		}
	}
	t.Fatalf("there is no register %s", alias)
	return 0
}
