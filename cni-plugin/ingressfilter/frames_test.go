package ingressfilter

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// These tests attach the frame filter (package framefilter) before the ingress filter, because a
// pod's interface has both. When frames leave the node, after all checks, the uplink finishes and
// splits them.

// Offsets in a frame without tags: of the IPv4 header, the UDP header and the UDP payload.
const (
	ipAt      = 14
	udpAt     = ipAt + 20
	payloadAt = udpAt + 8
)

// podRules are the filter rules at a pod's interface.
var podRules = Rules{Port: netcraq, Destination: vxlan, Untagged: true}

// finishing makes a route whose outgoing interface finishes frames. If the kernel does not support
// the frame filter, it skips the test.
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

// guard attaches the ingress filter to the pod's interface and, if on is set, the frame filter
// before it.
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

// redirect makes the node forward the pod's frames to the victim as a switch does, without the
// node's stack.
func (r *route) redirect() {
	r.t.Helper()
	eth0, err := r.victim.Link.LinkByName("eth0")
	check(r.t, err)
	check(r.t, r.victim.Link.LinkSetHardwareAddr(eth0, r.node.MAC("ncq"))) // frames keep their destination address
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

// becoming is like udptest.Becoming. Its two free bytes are in the payload.
func becoming(frame []byte, start, place int, value uint16) ([]byte, udptest.Offload) {
	return udptest.Becoming(frame, start, place, payloadAt+(payloadAt-start)%2, value)
}

// TestUnfinishedChecksum checks that finishing a packet's checksum cannot turn its port into a port
// of the switches or the tunnels.
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
					binary.BigEndian.PutUint16(frame[udpAt+6:], 0) // 0 means that UDP has no checksum
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

// TestFinishedChecksum checks that unfinished frames of a pod's own stack pass, whether or not
// their segments are split when they leave.
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

// TestSplit checks that a frame leaves as several datagrams only if its headers have the length of
// the whole frame.
func TestSplit(t *testing.T) {
	r, send := finishing(t)
	const segment = 64
	whole := r.packet(1000, victimAddr, other)
	whole.Payload = make([]byte, 3*segment)
	o := udptest.Offload{Flags: udptest.NeedsChecksum, Split: udptest.SplitUDPL4, Headers: payloadAt,
		Segment: segment, Start: udpAt, Place: 6}
	first := func() []byte { // the headers have the length of the first segment
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

// offloadFor is how long TestRandomOffload runs, in rounds of 20,000 frames. 0 means one round.
var offloadFor = flag.Duration("offload-for", 0, "how long TestRandomOffload sends frames")

// random sends frames with random unfinished work and random headers. bad counts frames that
// arrived as packets of the switches or tunnels. passed counts frames that arrived as other UDP.
// refused counts frames that the sender's kernel refused. restore resets the pod's interface before
// random counts.
func (r *route) random(rng *rand.Rand, count int, send func(udptest.Offload, []byte) error, restore func()) (
	bad, passed, refused int) {
	kinds := []udptest.Packet{r.packet(1000, victimAddr, other), r.packet(1000, victimAddr, netcraq),
		r.packet(netcraq, victimAddr, other), r.packet(1000, victimAddr, vxlan)}
	began := time.Now()
	for i := 0; i < count && time.Since(began) < 30*time.Second; i++ {
		f := kinds[i%len(kinds)].Frame()
		if rng.IntN(3) == 0 {
			f = udptest.Mutate(rng, kinds[i%len(kinds)])
		}
		o := udptest.Offload{Flags: uint8(rng.IntN(2)), Start: uint16(rng.IntN(60)), Place: uint16(rng.IntN(24))}
		if rng.IntN(2) == 0 && len(f) > payloadAt+2 { // at an offset with a port or a length
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
			refused++ // the pod's own kernel has refused the frame
		}
	}
	restore()
	for _, ip := range r.settle(victimAddr) {
		if ours(ip) {
			bad++
		} else {
			passed++
		}
	}
	return bad, passed, refused
}

// TestRandomOffload sends frames with random unfinished work and random headers. No frame may leave
// the node as a packet of the switches or the tunnels.
func TestRandomOffload(t *testing.T) {
	r, send := finishing(t)
	rng := rand.New(rand.NewPCG(36, 1))
	count, restore := 20_000, func() {}
	control, _, _ := r.random(rng, 2000, send, restore)
	r.guard(true)
	r.settle(victimAddr) // discards late frames that were sent before the guard was attached
	bad, passed, refused := r.random(rng, count, send, restore)
	for end := time.Now().Add(*offloadFor); time.Now().Before(end); count += 20_000 {
		b, p, f := r.random(rng, 20_000, send, restore)
		bad, passed, refused = bad+b, passed+p, refused+f
	}
	t.Logf("of %d frames %d were refused by the sender's kernel, %d arrived as other UDP, %d as the switches' or the "+
		"tunnels' (%d of 2,000 without a filter)", count, refused, passed, bad, control)
	if bad > 0 || passed == 0 || control == 0 {
		t.Errorf("%d arrive that should not, %d that may, %d of 2,000 without a filter", bad, passed, control)
	}
}

// changes are changes that a process with CAP_NET_ADMIN in the pod's namespace may make to its
// interface. n is a random number that selects a variant. A change that the kernel lacks is counted
// as "nothing".
var changes = []func(n int) string{
	func(n int) string {
		what := []string{"tx", "sg", "tso", "gso", "gro", "rx", "tx-udp-segmentation", "tx-gso-list", "txvlan", "tx-nocache-copy",
			"tx-vlan-stag-hw-insert", "highdma"}[n%12]
		return "ethtool -K eth0 " + what + " " + []string{"on", "off"}[n/12%2]
	},
	func(n int) string {
		return fmt.Sprint("ip link set eth0 mtu ", []int{68, 100, 576, 1280, 1500, 9000, 65535}[n%7])
	},
	func(n int) string { return fmt.Sprint("ip link set eth0 gso_max_size ", 100+n%200_000) },
	func(n int) string { return fmt.Sprint("ip link set eth0 gso_max_segs ", 1+n%100) },
	func(n int) string { // changes bytes of a frame after the frame has left the socket
		return fmt.Sprintf("nft add rule netdev t egress %s set %d",
			[]string{"@th,0,16", "@th,16,16", "@th,32,16", "@nh,16,16", "@nh,32,16", "@nh,72,8"}[n%6],
			[]int{netcraq, vxlan, 17, 64, n % 256}[n/6%5])
	},
	func(n int) string { return fmt.Sprintf("nft add rule netdev t egress meta mark set %d", n) },
	func(n int) string { return fmt.Sprintf("nft add rule netdev t egress meta priority set %d", n%65_536) },
	func(int) string { return "nft flush chain netdev t egress" },
	func(n int) string {
		return fmt.Sprint("tc qdisc replace dev eth0 root ", []string{"pfifo", "prio", "fq_codel", "noqueue"}[n%4])
	},
	func(n int) string { return fmt.Sprintf("ip link set eth0 txqueuelen %d", n%1000) },
}

// TestRandomAdmin does the same as TestRandomOffload, from a pod that changes its interface between
// frames.
func TestRandomAdmin(t *testing.T) {
	r, send := finishing(t)
	rng := rand.New(rand.NewPCG(36, 2))
	run := func(line string) error {
		var err error
		r.pod.Do(func() error {
			f := strings.Fields(line)
			err = exec.Command(f[0], f[1:]...).Run()
			return nil
		})
		return err
	}
	restore := func() {
		for _, line := range []string{"nft flush chain netdev t egress", "tc qdisc del dev eth0 root",
			"ethtool -K eth0 tx on sg on tso on gso on", "ip link set eth0 mtu 1500", "ip link set eth0 txqueuelen 1000",
			"ip link set eth0 gso_max_size 65536", "ip link set eth0 gso_max_segs 65535"} {
			_ = run(line) // an error means that the thing to remove does not exist
		}
	}
	for _, line := range []string{fmt.Sprintf("ip link add ours type vxlan id 5 dstport %d remote %s local %s dev eth0", vxlan, victimAddr, podAddr),
		fmt.Sprintf("ip link add theirs type vxlan id 6 dstport 4789 remote %s local %s dev eth0", victimAddr, podAddr),
		"ip link set ours up", "ip link set theirs up", "nft add table netdev t",
		"nft add chain netdev t egress { type filter hook egress device eth0 priority 0; }"} {
		check(t, run(line))
	}
	senders := []func(udptest.Offload, []byte) error{send, r.pod.OffloadSender("ours"), r.pod.OffloadSender("theirs")}
	byAny := func(o udptest.Offload, f []byte) error { return senders[rng.IntN(len(senders))](o, f) }
	const frames = 1000
	rounds, done, failed := 0, 0, 0
	var bad, passed, refused int
	one := func() (b int) {
		for range 1 + rng.IntN(4) {
			line := changes[rng.IntN(len(changes))](rng.IntN(1 << 30))
			if run(line) == nil {
				done++
			} else {
				failed++
			}
		}
		b, p, f := r.random(rng, frames, byAny, restore)
		rounds, passed, refused = rounds+1, passed+p, refused+f
		return b
	}
	control := 0
	for range 3 {
		control += one()
	}
	rounds, passed, refused = 0, 0, 0
	r.guard(true)
	r.settle(victimAddr) // discards late frames that were sent before the guard was attached
	for end := time.Now().Add(max(*offloadFor, time.Second)); time.Now().Before(end); {
		bad += one()
	}
	t.Logf("of %d frames in %d set-ups %d were refused by the sender's kernel, %d arrived as other UDP, %d as the switches' "+
		"or the tunnels' (%d of 3,000 without a filter); %d changes of the interface were made and %d refused", rounds*frames, rounds, refused, passed, bad, control, done,
		failed)
	if bad > 0 || passed == 0 || control == 0 || done == 0 {
		t.Errorf("%d arrive that should not, %d that may, %d of 3,000 without a filter", bad, passed, control)
	}
}
