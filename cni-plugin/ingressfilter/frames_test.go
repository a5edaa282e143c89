package ingressfilter

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// The frame filter (package framefilter) before the ingress filter: a pod's interface has both.
// The node's uplink finishes and splits frames when they leave, after all checks.

// Places in a frame without tags: IPv4's header, UDP's behind it, and UDP's payload.
const (
	ipAt      = 14
	udpAt     = ipAt + 20
	payloadAt = udpAt + 8
)

// podRules are those of a pod's interface.
var podRules = Rules{Port: netcraq, Destination: vxlan, Untagged: true}

// finishing is a route whose way out finishes frames. It skips the test where the kernel cannot
// tell such frames.
func finishing(t *testing.T) (*route, func(udptest.Offload, []byte) error) {
	t.Helper()
	if err := framefilter.Supported(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	r := newRoute(t)
	r.node.FinishesFrames("out")
	r.node.FinishesFrames("ncq")
	return r, r.pod.OffloadSender("eth0")
}

// guard puts the ingress filter at the pod's interface, and with on the frame filter before it.
func (r *route) guard(on bool) {
	r.t.Helper()
	r.node.Do(func() error {
		index := r.node.Index("ncq")
		frames := framefilter.Detach
		if on {
			frames = framefilter.Attach
		}
		return errors.Join(Attach(index, podRules), frames(index))
	})
}

// redirect makes the node send what the pod sends to the victim as a switch does, past the stack.
func (r *route) redirect() {
	r.t.Helper()
	eth0, err := r.victim.Link.LinkByName("eth0")
	check(r.t, err)
	check(r.t, r.victim.Link.LinkSetHardwareAddr(eth0, r.node.MAC("ncq"))) // nobody changes the frame's
	r.node.Do(func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R1, int32(r.node.Index("out"))), asm.Mov.Imm(asm.R2, 0),
				asm.FnRedirect.Call(), asm.Return()}})
		if err != nil {
			return err
		}
		defer p.Close()
		return link.RawAttachProgram(link.RawAttachProgramOptions{Target: r.node.Index("ncq"), Program: p,
			Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	})
}

// becoming makes a frame whose checksum, when it is finished, is a value at a place: it chooses two
// bytes of the payload.
func becoming(frame []byte, start, place int, value uint16) ([]byte, udptest.Offload) {
	free := payloadAt
	if (free-start)%2 != 0 {
		free++
	}
	frame[free], frame[free+1] = 0, 0
	sum := uint32(^value)
	rest := frame[start:]
	if len(rest)%2 != 0 {
		rest = append(slices.Clone(rest), 0)
	}
	for i := 0; i < len(rest); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(rest[i:])) // less each of the others
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[free:], uint16(sum))
	return frame, udptest.Offload{Flags: udptest.NeedsChecksum, Start: uint16(start), Place: uint16(place - start)}
}

// TestUnfinishedChecksum: a packet of another port does not become one of the switches' or the
// tunnels' when its checksum is finished.
func TestUnfinishedChecksum(t *testing.T) {
	r, send := finishing(t)
	for name, c := range map[string]struct {
		start, place int
		value        uint16
	}{
		"the destination becomes the tunnels'":              {udpAt, udpAt + 2, vxlan},
		"the destination becomes the switches'":             {udpAt, udpAt + 2, netcraq},
		"the source becomes the switches'":                  {udpAt, udpAt, netcraq},
		"the destination, from the payload on":              {payloadAt, udpAt + 2, netcraq},
		"the protocol and time to live become UDP's and 64": {ipAt + 8, ipAt + 8, 64<<8 | 17},
	} {
		t.Run(name, func(t *testing.T) {
			if c.place < c.start {
				t.Skip("the kernel's offset is not negative: nothing to send")
			}
			p := r.packet(1000, victimAddr, other)
			for _, on := range []bool{false, true} {
				r.guard(on)
				frame, o := becoming(p.Frame(), c.start, c.place, c.value)
				if c.place >= udpAt {
					binary.BigEndian.PutUint16(frame[udpAt+6:], 0) // UDP's own checksum: none
					frame, o = becoming(frame, c.start, c.place, c.value)
				}
				check(t, send(o, frame))
				arrived := 0
				for _, ip := range r.settle(victimAddr) {
					if ours(ip) || c.place < udpAt && len(ip) > 0 {
						arrived++
					}
				}
				switch {
				case on && arrived > 0:
					t.Errorf("it arrives changed, %d times", arrived)
				case !on && arrived == 0 && c.place >= udpAt:
					t.Error("it does not arrive changed without a filter: the test means nothing")
				}
			}
		})
	}
}

// TestFinishedChecksum: what a pod's own stack leaves to be finished passes, with and without its
// segments split on the way out.
func TestFinishedChecksum(t *testing.T) {
	r, send := finishing(t)
	r.guard(true)
	p := r.packet(1000, victimAddr, other)
	p.Payload = make([]byte, 64)
	frame := p.Frame()
	check(t, send(udptest.Offload{Flags: udptest.NeedsChecksum, Start: udpAt, Place: 6}, frame))
	if got := r.settle(victimAddr); len(got) != 1 {
		t.Errorf("of a datagram whose checksum its stack left to the device %d arrive", len(got))
	}
	for _, c := range []struct{ network, to string }{{"tcp", "10.2.0.2:80"}, {"udp", "10.2.0.2:53"},
		{"tcp", "[fd00:1::1]:80"}, {"udp", "[fd00:1::1]:53"}} {
		server := r.victim
		if c.to[0] == '[' {
			server = r.node
		}
		for _, size := range []int{10, 60_000} {
			if err := exchange(t, r.pod, server, c.network, c.to, size); err != nil {
				t.Errorf("%s to %s, %d bytes: %v", c.network, c.to, size, err)
			}
		}
	}
}

// TestSplit: one frame becomes several datagrams on the way out only if its headers say the length
// of the whole.
func TestSplit(t *testing.T) {
	r, send := finishing(t)
	const segment = 64
	whole := r.packet(1000, victimAddr, other)
	whole.Payload = make([]byte, 3*segment)
	o := udptest.Offload{Flags: udptest.NeedsChecksum, Split: udptest.SplitUDPL4, Headers: payloadAt,
		Segment: segment, Start: udpAt, Place: 6}
	first := func() []byte { // the lengths are those of the first segment
		f := whole.Frame()
		binary.BigEndian.PutUint16(f[ipAt+2:], 20+8+segment)
		binary.BigEndian.PutUint16(f[udpAt+4:], 8+segment)
		udptest.Checksum(f[ipAt:])
		return f
	}
	r.redirect()
	for _, on := range []bool{false, true} {
		r.guard(on)
		check(t, send(o, whole.Frame()))
		if got := r.settle(victimAddr); len(got) != 3 {
			t.Errorf("filter %v: of three datagrams in one frame %d arrive", on, len(got))
		}
		check(t, send(o, first()))
		got := len(r.settle(victimAddr))
		if on && got > 0 || !on && got == 0 {
			t.Errorf("filter %v: of a frame whose headers say the length of its first datagram %d arrive", on, got)
		}
	}
}

// TestRandomOffload sends frames with random work left to do and random headers. No frame that
// leaves is the switches' or the tunnels'.
func TestRandomOffload(t *testing.T) {
	r, send := finishing(t)
	rng := rand.New(rand.NewPCG(36, 1))
	count, seconds := 20_000, 30*time.Second
	run := func(count int) (bad, passed, refused int) {
		kinds := []udptest.Packet{r.packet(1000, victimAddr, other), r.packet(1000, victimAddr, netcraq),
			r.packet(netcraq, victimAddr, other), r.packet(1000, victimAddr, vxlan)}
		began := time.Now()
		for i := range count {
			if time.Since(began) > seconds {
				break
			}
			f := kinds[i%len(kinds)].Frame()
			if rng.IntN(3) == 0 {
				f = udptest.Mutate(rng, kinds[i%len(kinds)])
			}
			o := udptest.Offload{Flags: uint8(rng.IntN(2)), Start: uint16(rng.IntN(60)), Place: uint16(rng.IntN(24))}
			if rng.IntN(2) == 0 && len(f) > payloadAt+2 { // at a place that matters
				places := [][2]int{{udpAt, udpAt}, {udpAt, udpAt + 2}, {ipAt, ipAt + 8}, {ipAt, udpAt + 2}}
				at := places[rng.IntN(len(places))]
				f, o = becoming(f, at[0], at[1], []uint16{netcraq, vxlan, 64<<8 | 17}[rng.IntN(3)])
			}
			if rng.IntN(3) == 0 {
				o.Split = []uint8{udptest.SplitTCP4, udptest.SplitUDP, udptest.SplitTCP6, udptest.SplitUDPL4,
					uint8(rng.IntN(256))}[rng.IntN(5)]
				o.Headers, o.Segment = uint16(rng.IntN(80)), uint16(rng.IntN(100))
			}
			if send(o, f) != nil {
				refused++ // by the pod's own kernel
			}
		}
		for _, ip := range r.settle(victimAddr) {
			if ours(ip) {
				bad++
			} else {
				passed++
			}
		}
		return bad, passed, refused
	}
	control, _, _ := run(2000)
	r.guard(true)
	bad, passed, refused := run(count)
	t.Logf("of %d frames %d were refused by the sender's kernel, %d arrived as other UDP, %d as the switches' or the "+
		"tunnels' (%d of 2,000 without a filter)", count, refused, passed, bad, control)
	if bad > 0 || passed == 0 || control == 0 {
		t.Errorf("%d arrive that should not, %d that may, %d of 2,000 without a filter", bad, passed, control)
	}
}
