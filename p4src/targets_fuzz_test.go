package p4src

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
)

var targetFrames = flag.Int("target-frames", 600, "frames that TestTargetsAgree gives to each real switch")

// TestTargetsAgree sends random frames to real switches, one after the other, over their interfaces
// and by packet-out. It compares the frames that leave a switch with the interpreter's output in
// this process. TestTargets uses packets that a person chose, and this test finds cases that nobody
// thought of. If BMv2 is installed, the test includes it. So BMv2 checks the interpreter, which is
// the reference for the other engines.
func TestTargetsAgree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces and raw sockets")
	}
	roles := []string{"HEAD", "REPLICA", "TAIL", "HEAD_TAIL"}
	for _, target := range realTargets {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel() // a target's test waits most of the time
			command := target.command(t)
			for i, role := range roles {
				profile := []int{128, 8192}[i%2]
				t.Run(fmt.Sprintf("%s-%d", role, profile), func(t *testing.T) {
					p := startTarget(t, command, profile)
					compare(t, p.(*process), role, profile, rand.New(rand.NewPCG(*fuzzSeed, uint64(i))),
						*targetFrames/len(roles))
				})
			}
		})
	}
}

// fuzzConfiguration returns scenario commands that configure the chain and the routes of a switch
// for random frames.
func fuzzConfiguration(role string) []string {
	return []string{"port 1 host principal=1", "lease 1-3 1", "grant 1 2 read", "grant 2 1 read write", "port 2 fabric", "port 3 fabric",
		"peer 1 2 predecessor tail member", "peer 1 3 tail member", "address 10.0.100.1", "address 10.0.200.2",
		"chain 1 role=" + role + " epoch=3 head=10.0.200.1 next=10.0.200.3 tail=10.0.200.4 service=10.0.100.1 ack-group=7 reply-group=256",
		"route 10.0.1.0/24 port=1 mac=02:00:00:00:00:01", "route 10.0.200.0/24 port=2 mac=02:00:00:00:00:02", "route 10.0.100.0/24 port=3 mac=02:00:00:00:00:03",
		"route 10.0.9.0/30 controller", "slot 0x01000001 1", "slot 0x01000002 2", "slot 0x01000003 3 realm=2",
		"group 7 2:0 3:0", "group 257 1:2 2:1", "group 258 2:2 3:1 2:1", "group 259 3:2 3:1",
		"watched-chain 1 epoch=3 ack-group=8 reply-group=512", "watched-key 0x01000001", "watched-key 0x01000003",
		"watcher 1 0x01000001 mac=02:00:00:00:00:01 address=10.0.1.7 udp=9001",
		"watcher 3 0x01000003 mac=02:00:00:00:00:03 address=10.0.3.7 udp=9003", "group 8 1:3 2:1 3:3",
		"group 513 1:2 1:3 2:1 3:3", "group 514 2:2 1:3 3:1", "group 515 3:2 1:3 2:1 3:3"}
}

// randomInput returns a random frame and its ingress port. A frame from the controller has the
// packet-out header.
func randomInput(r *rand.Rand, profile wire.Profile) (port uint32, frame []byte) {
	port = []uint32{1, 2, 2, 3, controllerPort}[r.IntN(5)]
	frame = randomFrame(r, profile)
	if port != controllerPort {
		return port, frame
	}
	header := []byte{0, 0x40}
	if r.IntN(8) == 0 {
		header = []byte{0, 0x80} // the switch sends the frame to port 1, unchanged
	}
	return port, append(header, frame...)
}

func compare(t *testing.T, p *process, role string, profile int, r *rand.Rand, frames int) {
	in := newInterpreter(t, profile, nil)
	for _, d := range []device{p, in} {
		s := &scenario{device: d, profile: wire.Profile(profile)}
		for _, line := range fuzzConfiguration(role) {
			check(t, s.command(t, nil, line))
		}
	}
	came := 0
	for n := range frames {
		port, frame := randomInput(r, wire.Profile(profile))
		want, err := in.send(port, bytes.Clone(frame))
		check(t, err)
		got, err := p.exchange(port, frame, uint32(n), len(want))
		check(t, err)
		came += len(want)
		order(want)
		order(got)
		if len(want) != len(got) || !equalOutputs(want, got) {
			t.Fatalf("frame %d, by port %d:\n%x\ninterp: %s\ntarget: %s", n, port, frame, show(want), show(got))
		}
	}
	if came < frames/4 {
		t.Errorf("only %d frames came out for %d: the comparison says little", came, frames)
	}
	want, err := in.events()
	check(t, err)
	got, err := p.events()
	check(t, err)
	want[0] += uint64(frames) // the barrier frames, which are not NetCRAQ packets
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("event %d was counted %d times, by the interpreter %d times", i, got[i], want[i])
		}
	}
	t.Logf("%d frames, %d out", frames, came)
}

// exchange sends a frame, and then a barrier frame on the same path, which the switch only routes.
// When the barrier frame has left the switch, the switch has processed the first frame. Other
// threads of the switch may still have copies and packet-ins to deliver. So exchange waits for the
// expected number of frames, and then for a short time for more frames.
func (p *process) exchange(port uint32, frame []byte, number uint32, expect int) ([]output, error) {
	p.mu.Lock()
	p.packets = nil
	p.mu.Unlock()
	barrier, mark := barrierFrame(number)
	give := func(frame []byte) error {
		if port == controllerPort {
			header := binary.BigEndian.Uint16(frame)
			return p.client.PacketOut(frame[2:], map[string]uint64{"egress_port": uint64(header >> 7),
				"submit_to_ingress": uint64(header >> 6 & 1), "padding": 0})
		}
		_, err := unix.Write(p.sockets[port], frame)
		return err
	}
	if err := give(frame); err != nil {
		return nil, fmt.Errorf("sending by port %d: %w", port, err)
	}
	if port == controllerPort {
		barrier = append([]byte{0, 0x40}, barrier...)
	}
	if err := give(barrier); err != nil {
		return nil, fmt.Errorf("sending the barrier by port %d: %w", port, err)
	}
	var out []output
	buffer := make([]byte, 65536)
	passed := time.Time{}
	for start := time.Now(); ; {
		for number, fd := range p.sockets {
			for {
				n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return nil, fmt.Errorf("receiving at port %d: %w", number, err)
				}
				ll, _ := from.(*unix.SockaddrLinklayer)
				if ll == nil || ll.Pkttype == unix.PACKET_OUTGOING ||
					n >= 14 && binary.BigEndian.Uint16(buffer[12:]) == unix.ETH_P_IPV6 {
					continue
				}
				if bytes.HasSuffix(buffer[:n], mark) {
					passed = time.Now()
					continue
				}
				out = append(out, output{number, bytes.Clone(buffer[:n])})
				if !passed.IsZero() {
					passed = time.Now()
				}
			}
		}
		p.mu.Lock()
		all := append(out, p.packets...)
		p.mu.Unlock()
		switch {
		case !passed.IsZero() && (time.Since(passed) > time.Second ||
			len(all) >= expect && time.Since(passed) > settled):
			return all, nil
		case passed.IsZero() && time.Since(start) > 5*time.Second:
			return nil, fmt.Errorf("the barrier behind a frame by port %d did not come out in 5 s", port)
		}
	}
}

// settled is the time to wait for more frames after the barrier frame and the expected frames have
// arrived.
const settled = 2 * time.Millisecond

// barrierFrame returns a UDP packet to a host at port 1, and the mark at the end of the packet.
func barrierFrame(number uint32) (frame, mark []byte) {
	mark = binary.BigEndian.AppendUint32([]byte("barrier "), number)
	f := wire.Frame{EthernetDst: [6]byte{2, 0, 0, 0, 0, 0xA}, EthernetSrc: [6]byte{2, 0, 0, 0, 0, 0xC},
		Src: netip.MustParseAddrPort("10.0.5.9:9"), Dst: netip.MustParseAddrPort("10.0.1.9:9")}
	frame, err := f.AppendTo(nil, []byte(strings.Repeat(" ", 20)+string(mark)))
	if err != nil {
		panic(err)
	}
	return frame, mark
}
