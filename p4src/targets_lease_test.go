package p4src

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// TestDeadSwitchStopsAnswering kills a switch whose eBPF programs stay attached to the ports, as on
// kernels before 6.6. These programs continue to answer reads, but must stop when the read lease
// from the controller ends.
func TestDeadSwitchStopsAnswering(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces and raw sockets")
	}
	if err := ebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	p := startTarget(t, []string{buildSwitch(t), "--engine", "ebpf", "--hook", "clsact"}, 128).(*process)
	s := &scenario{device: p, profile: 128}
	for _, line := range []string{"port 1 host principal=1 address=10.0.1.1", "port 2 fabric", "address 10.0.100.1", "address 10.0.200.2",
		"chain 1 role=HEAD_TAIL lease epoch=3 head=10.0.200.2 tail=10.0.200.2 service=10.0.100.1", "route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01",
		"route 169.254.78.67/32 controller", "slot 0x01000001 1"} {
		check(t, s.command(t, nil, line))
	}
	const lease = 1500 * time.Millisecond
	renew := func(clock wire.Version, length time.Duration) wire.Packet {
		t.Helper()
		frame, err := s.frame([]string{"send", "510", "LEASE"}, map[string]string{"key": "0x01000000", "epoch": "3", "from": "169.254.78.67:4000"})
		check(t, err)
		_, payload, err := wire.ParseFrame(frame)
		check(t, err)
		var q wire.Packet
		check(t, q.Unmarshal(payload, 128))
		q.Version, q.Request = clock, uint32(length.Microseconds())
		payload, err = q.Marshal(128)
		check(t, err)
		copy(frame[42:], payload)
		out, err := p.send(controllerPort, append([]byte{0, 0x40}, frame...))
		check(t, err)
		if len(out) != 1 || out[0].port != controllerPort {
			t.Fatalf("renewing the lease: %s", show(out))
		}
		_, payload, err = wire.ParseFrame(out[0].frame[2:])
		check(t, err)
		var a wire.Packet
		check(t, a.Unmarshal(payload, 128))
		return a
	}
	clock := renew(0, time.Microsecond).Version
	start := time.Now()
	if a := renew(clock, lease); a.Status != wire.OK {
		t.Fatalf("renewing the lease: %v", a.String())
	}
	read := queryFrame(t, wire.Packet{Op: wire.Read, Request: 1, Key: 0x01000001})
	ask := func() (wire.Packet, bool) {
		t.Helper()
		_, err := unix.Write(p.sockets[1], read)
		check(t, err)
		buffer := make([]byte, 65536)
		for sent := time.Now(); time.Since(sent) < 50*time.Millisecond; {
			n, from, err := unix.Recvfrom(p.sockets[1], buffer, unix.MSG_DONTWAIT)
			if ll, _ := from.(*unix.SockaddrLinklayer); err != nil || ll == nil ||
				ll.Pkttype == unix.PACKET_OUTGOING || n < 42 || binary.BigEndian.Uint16(buffer[12:]) != unix.ETH_P_IP {
				continue
			}
			var a wire.Packet
			if _, payload, err := wire.ParseFrame(buffer[:n]); err == nil && a.Unmarshal(payload, 128) == nil &&
				a.Op == wire.ReadReply {
				return a, true
			}
		}
		return wire.Packet{}, false
	}
	// A live switch answers the read with NOT_FOUND, because the key was never written.
	if a, ok := ask(); !ok || a.Status != wire.NotFound {
		t.Fatalf("the switch lives: %v, %v", ok, a.String())
	}
	check(t, p.process.Kill())
	if a, ok := ask(); time.Since(start) < lease && (!ok || a.Status != wire.NotFound) {
		t.Errorf("the switch has died, its lease has not run out: %v, %v", ok, a.String())
	}
	time.Sleep(time.Until(start.Add(lease + 100*time.Millisecond)))
	if a, ok := ask(); ok && a.Status != wire.NotServing {
		t.Errorf("the switch is dead, and its lease has run out: %v", a.String())
	}
}
