package p4src

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/switch/ebpf"
)

var hostileFrames = flag.Int("hostile-frames", 0, "frames that each hostile host sends in TestHostileHost; 0: 200,000 to the interpreter, fewer to the others")

// hostileNetwork configures the attacked switch. It is the only member of chain 1, and the tail of
// chain 2. Port 1 has the victim, with principal 1. Port 4 has a host whose port is closed. Port 5
// has the hostile host, with principal 9, which is the only host that may use key 3. Ports 2 and 3
// have other switches.
var hostileNetwork = []string{"port 1 host principal=1 address=10.0.1.1", "port 5 host principal=9 address=10.0.5.5", "port 2 fabric", "port 3 fabric", "address 10.0.100.1", "address 10.0.200.2",
	"route 10.0.1.1/32 port=1 mac=02:00:00:00:01:01", "route 10.0.4.4/32 port=4 mac=02:00:00:00:04:04", "route 10.0.5.5/32 port=5 mac=02:00:00:00:05:05",
	"route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "route 10.0.0.0/16 port=3 mac=02:00:00:00:00:03", "route 169.254.78.67/32 controller",
	"slot 0x01000001 1", "slot 0x01000002 2", "slot 0x01000003 3 realm=9", "slot 0x02000001 4", "slot 0x01000009 5 realm=65535", "lease 70 1", "lease 71 5", "group 7 2:1 3:1",
	"group 257 1:2 2:1", "group 258 2:2 3:1", "group 259 3:2 2:1", "group 261 5:2 2:1",
	// The victim's server and the hostile host's server watch keys. Each server watches the keys of
	// its own host.
	"watched-chain 1 epoch=3 ack-group=8 reply-group=512", "watched-chain 2 epoch=3 ack-group=8 reply-group=512",
	"watched-key 0x01000001", "watched-key 0x01000002", "watched-key 0x01000003", "watched-key 0x02000001",
	"watcher 1 0x01000001 mac=02:00:00:00:01:01 address=10.0.1.1 udp=9001", "watcher 1 0x01000002 mac=02:00:00:00:01:01 address=10.0.1.1 udp=9001",
	"watcher 1 0x02000001 mac=02:00:00:00:01:01 address=10.0.1.1 udp=9001", "watcher 5 0x01000003 mac=02:00:00:00:05:05 address=10.0.5.5 udp=9005",
	"group 8 1:3 2:1 3:1 5:3", "group 513 1:2 1:3 2:1 5:3", "group 514 2:2 1:3 3:1 5:3", "group 515 3:2 1:3 2:1 5:3", "group 517 5:2 1:3 2:1 5:3",
	"chain 1 role=HEAD_TAIL epoch=3 service=10.0.100.1 ack-group=7 reply-group=256",
	"chain 2 role=TAIL epoch=3 head=10.0.200.1 tail=10.0.200.2 service=10.0.100.1 ack-group=7 reply-group=256"}

// TestHostileHost checks that a hostile host cannot affect other hosts. It sends random frames, and
// mutations of harmful frames, through a closed port and through the port of a host that may use
// one key. The values of other keys and the sessions of other hosts must not change. The switch
// must not send protocol messages that others would believe, and the victim must get its answers
// throughout.
func TestHostileHost(t *testing.T) {
	frames := func(usual int) int {
		if *hostileFrames > 0 {
			return *hostileFrames
		}
		if racedetector.Enabled {
			return usual / 20
		}
		return usual
	}
	t.Run("interp", func(t *testing.T) {
		attack(t, &attackedInterpreter{newInterpreter(t, 128, nil)}, frames(200_000))
	})
	for _, hook := range []ebpf.Hook{ebpf.HookTC, ebpf.HookXDP} {
		t.Run(fmt.Sprint(hook), func(t *testing.T) {
			if err := ebpf.Probe(); err != nil {
				t.Skipf("eBPF is not available: %v", err)
			}
			attack(t, &attackedKernel{newKernel(t, 128, hook)}, frames(30_000))
		})
	}
	t.Run("bmv2", func(t *testing.T) {
		command := realTargets[len(realTargets)-1].command(t)
		attack(t, &attackedProcess{startTarget(t, command, 128).(*process)}, frames(5_000))
	})
}

// attacked is a target that accepts many frames at once.
type attacked interface {
	device
	// burst sends frames through a port, and returns the frames that leave the switch.
	burst(port uint32, frames [][]byte) ([]output, error)
}

func attack(t *testing.T, d attacked, frames int) {
	s := &scenario{device: d, profile: wire.Profile128}
	for _, line := range hostileNetwork {
		check(t, s.command(t, nil, line))
	}
	say := func(port string, op string, fields map[string]string) []output {
		t.Helper()
		frame, err := s.frame([]string{"send", port, op}, fields)
		check(t, err)
		if port == "510" {
			frame = append([]byte{0, 0x40}, frame...)
		}
		number := uint32(number(port))
		for range 5 {
			out, err := d.send(number, frame)
			check(t, err)
			if op == "FETCH" { // ignore a late NOTIFY about an earlier write
				out = slices.DeleteFunc(out, func(o output) bool { return o.port != controllerPort })
			}
			if len(out) > 0 {
				return out
			}
		}
		t.Fatalf("%s by port %s %v: nothing came out", op, port, fields)
		return nil
	}
	for _, key := range []string{"0x01000001", "0x01000002", "0x02000001"} {
		say("510", "SYNC", map[string]string{"key": key, "version": "3.1", "value": "of " + key, "from": "169.254.78.67:4000"})
	}
	say("1", "WRITE", map[string]string{"key": "0x01000001", "session": "70", "request": "1000", "value": "mine"})
	fetches := func() (out []string) {
		t.Helper()
		from := "169.254.78.67:4000"
		for _, key := range []string{"0x01000001", "0x01000002", "0x02000001", "0x01000009"} {
			for _, flags := range []string{"0", "NEWEST"} {
				f := map[string]string{"key": key, "from": from}
				if flags != "0" {
					f["flags"] = flags
				}
				out = append(out, s.describe(say("510", "FETCH", f)[0]))
			}
		}
		for _, session := range []string{"1", "2", "64", "65", "70", "4095"} {
			out = append(out, s.describe(say("510", "FETCH", map[string]string{"key": "0x01000000", "session": session, "flags": "SESSION", "from": from})[0]))
		}
		return out
	}
	before := fetches()
	victim := func(what string) {
		t.Helper()
		out := say("1", "READ", map[string]string{"key": "0x01000001", "request": "7"})
		if got := s.describe(out[0]); len(out) != 1 || out[0].port != 1 || !bytes.Contains([]byte(got), []byte(`status=OK epoch=3 version=3.2 value="mine"`)) {
			t.Fatalf("%s the victim is told %s", what, got)
		}
	}
	r := rand.New(rand.NewPCG(*fuzzSeed, 99))
	const batch = 500
	for _, port := range []uint32{4, 5} {
		began, emerged := time.Now(), map[uint32]int{}
		for sent := 0; sent < frames; sent += batch {
			var some [][]byte
			for range min(batch, frames-sent) {
				some = append(some, hostileFrame(r))
			}
			out, err := d.burst(port, some)
			check(t, err)
			for _, o := range out {
				emerged[o.port]++
				if what := forgery(port, o); what != "" {
					t.Fatalf("a frame that came by port %d left by port %d: %s: %s\n%x", port, o.port, what, s.describe(o), o.frame)
				}
			}
			if sent%(frames/10) == 0 {
				victim(fmt.Sprintf("after %d frames", sent))
			}
		}
		victim("at the end")
		t.Logf("%d frames by port %d in %v; out came, by port, %v", frames, port, time.Since(began).Round(time.Millisecond), emerged)
	}
	if after := fetches(); !slices.Equal(after, before) {
		for i := range before {
			if before[i] != after[i] {
				t.Errorf("was: %s\nis:  %s", before[i], after[i])
			}
		}
	}
}

// hostileFrame returns a random frame, or a mutation of a frame that a switch would believe if it
// came from another port.
func hostileFrame(r *rand.Rand) []byte {
	pick := func(of ...uint64) uint64 { return of[r.IntN(len(of))] }
	frame := randomFrame(r, wire.Profile128)
	if len(frame) < 66 {
		return frame
	}
	ip, udp := frame[14:34], frame[34:42]
	if r.IntN(2) == 0 { // use existing keys and sessions, and request numbers that would block a session
		binary.BigEndian.PutUint16(frame[46:], uint16(pick(0, 1, 2, 64, 65, 70, 71, 4095)))
		binary.BigEndian.PutUint32(frame[50:], uint32(pick(1001, 0xFFFFFFFF, 1000+wire.RequestWindow,
			uint64(r.Uint32()))))
		binary.BigEndian.PutUint32(frame[54:], uint32(pick(0x01000001, 0x01000002, 0x01000003, 0x02000001,
			0x01000009, 0x01000000)))
	}
	binary.BigEndian.PutUint32(ip[12:], uint32(pick(0x0A000505, 0x0A000505, 0x0A000404, 0x0A000101, 0x0A006401,
		0x0AC80002, 0xA9FE4E43, uint64(r.Uint32()))))
	binary.BigEndian.PutUint32(ip[16:], uint32(pick(0x0A006401, 0x0A006401, 0x0A00C802, 0x0A00C801, 0x0A000101,
		0xA9FE4E43)))
	switch r.IntN(8) {
	case 0:
		binary.BigEndian.PutUint16(ip[6:], uint16(pick(0x2000, 1, 0x2001, 0x4000)))
	case 1:
		binary.BigEndian.PutUint16(udp[pick(0, 2):], 20035)
	}
	ip[0] = 0x45
	fixChecksum(frame)
	switch r.IntN(10) {
	case 0:
		n := 1 + r.IntN(10)
		with := append(slices.Clone(frame[:34]), bytes.Repeat([]byte{1}, 4*n)...)
		frame = append(with, frame[34:]...)
		frame[14] += byte(n)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		fixChecksum(frame)
	case 1, 2:
		for range 1 + r.IntN(3) {
			tag := uint16(pick(0x8100, 0x88a8, 0x9100))
			frame = append(append(slices.Clone(frame[:12]), byte(tag>>8), byte(tag), 0, byte(r.IntN(3))), frame[12:]...)
		}
	case 3:
		frame[r.IntN(len(frame))] ^= byte(1 + r.IntN(255))
	}
	return frame
}

// forgery checks a frame that left the switch after a frame of the hostile host. It returns what is
// wrong with the frame, or "" if nothing is wrong.
func forgery(from uint32, o output) string {
	if o.port == controllerPort {
		return "to the controller"
	}
	f, payload, err := wire.ParseFrame(o.frame)
	if err != nil {
		if len(o.frame) < 38 || o.frame[23] != 17 {
			return "" // the frame is not a NetCRAQ packet, so the switch routes it like any other packet
		}
		if o.frame[14] != 0x45 || binary.BigEndian.Uint16(o.frame[20:])&0x3FFF != 0 {
			return "UDP in a fragment, or with options"
		}
		if binary.BigEndian.Uint16(o.frame[34:]) == wire.Port || binary.BigEndian.Uint16(o.frame[36:]) == wire.Port {
			return "of the protocol, and malformed"
		}
		return ""
	}
	if f.Src.Port() != wire.Port && f.Dst.Port() != wire.Port {
		return ""
	}
	var p wire.Packet
	if err := p.Unmarshal(payload, wire.Profile128); err != nil {
		return "malformed"
	}
	own := f.Src.Addr().String() == "10.0.5.5"
	switch {
	case from == 4:
		return "of the protocol, from a closed port"
	case o.port == 5 && p.Op.IsReply() && f.Dst.Addr().String() == "10.0.5.5":
		if told := p.Status == wire.OK || p.Status == wire.CASFailed || p.Status == wire.Superseded; told &&
			p.Key != 0x01000003 {
			return "an answer about what is not its own"
		}
		return ""
	case (o.port == 2 || o.port == 3) && p.Op == wire.Ack && p.Key == 0x01000003:
		return "" // the frame is the ACK of the hostile host's own write
	case (p.Op == wire.Read || p.Op == wire.Write || p.Op == wire.CAS) && own &&
		p.Flags&^(wire.Eventual|wire.ToHead|wire.DirtyForwarded) == 0 && f.Principal == 9:
		return "" // the frame is the hostile host's own request, with its own principal
	}
	return "what others would believe"
}

type attackedInterpreter struct{ *interpreter }

func (d *attackedInterpreter) burst(port uint32, frames [][]byte) (out []output, err error) {
	for _, f := range frames {
		d.now += time.Microsecond
		for _, o := range d.pipeline.Process(d.now, port, f) {
			out = append(out, output{o.Port, bytes.Clone(o.Frame)})
		}
	}
	return out, nil
}

type attackedKernel struct{ *kernel }

func (k *attackedKernel) burst(port uint32, frames [][]byte) ([]output, error) {
	return burst(k.sockets, k.events, port, frames, 64, 2*time.Millisecond, 0)
}

type attackedProcess struct{ *process }

func (p *attackedProcess) burst(port uint32, frames [][]byte) ([]output, error) {
	const atOnce = 16 // maximum number of frames to send at once; BMv2 drops frames when more than 32 arrive at once
	return burst(p.sockets, p.events, port, frames, atOnce, 2*time.Millisecond, 20*time.Millisecond)
}

// burst sends frames through a port's socket, a few at a time. It collects the frames that leave
// the switch at any port, until no frame has arrived for the time `late`. It must wait because the
// threads of a target deliver frames with a delay.
func burst(sockets map[uint32]int, events func() ([]uint64, error), port uint32, frames [][]byte, atOnce int,
	quiet, late time.Duration) (out []output, err error) {
	buffer := make([]byte, 65536)
	counted := func() (n uint64, err error) {
		all, err := events()
		for _, e := range all {
			n += e
		}
		return n, err
	}
	// arrived waits until the switch has counted the given number of events, but at most for the
	// time `most`.
	arrived := func(all uint64, most time.Duration) error {
		for end := time.Now().Add(most); ; {
			if n, err := counted(); err != nil || n >= all || time.Now().After(end) {
				return err
			}
		}
	}
	take := func() error {
		for number, fd := range sockets {
			for {
				n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return fmt.Errorf("receiving at port %d: %w", number, err)
				}
				if ll, _ := from.(*unix.SockaddrLinklayer); ll != nil && ll.Pkttype != unix.PACKET_OUTGOING &&
					binary.BigEndian.Uint16(buffer[12:]) != unix.ETH_P_IPV6 {
					out = append(out, output{number, bytes.Clone(buffer[:n])})
				}
			}
		}
		return nil
	}
	all, err := counted()
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(frames, atOnce) {
		before, err := counted()
		if err != nil {
			return nil, err
		}
		sent := uint64(0)
		for _, f := range some {
			// writing a frame shorter than an Ethernet header fails, so the frame does not count as
			// sent
			if _, err := unix.Write(sockets[port], f); err == nil {
				sent++
			}
		}
		all += sent
		if err := arrived(before+sent, quiet); err != nil {
			return nil, err
		}
		if err := take(); err != nil {
			return nil, err
		}
	}
	// Wait for late frames. Otherwise they would be taken for the answer to the next query.
	if err := arrived(all, 5*late); err != nil {
		return nil, err
	}
	for n, last := len(out), time.Now(); time.Since(last) < late; time.Sleep(time.Millisecond) {
		if err := take(); err != nil {
			return nil, err
		}
		if len(out) > n {
			n, last = len(out), time.Now()
		}
	}
	return out, nil
}
