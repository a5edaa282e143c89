package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// forged is the value that an attacker tries to write.
const forged = "mallory"

// These are the source ports of an attacker. It receives answers on one of them, and uses the other
// for tunnels.
const (
	askPort    = 5555
	tunnelPort = 5556
)

// settle is how long the attacker waits for answers after the last packet of an attack.
const settle = 300 * time.Millisecond

// attacks are the attacks of a hostile host, by name.
var attacks = map[string]func(*attacker){
	"reads":     (*attacker).reads,
	"writes":    (*attacker).writes,
	"sessions":  (*attacker).sessions,
	"stamped":   (*attacker).stamped,
	"acks":      (*attacker).acks,
	"replies":   (*attacker).replies,
	"spoofed":   (*attacker).spoofed,
	"tags":      func(a *attacker) { a.wrapped("tag") },
	"options":   func(a *attacker) { a.wrapped("option") },
	"fragments": func(a *attacker) { a.wrapped("fragment") },
	"vxlan":     (*attacker).vxlan,
	"mutated":   (*attacker).mutated,
	"flood":     (*attacker).flood,
	"tunnels":   (*attacker).tunnels,
}

// attacker sends frames through a packet socket, which requires CAP_NET_RAW. Without this
// capability, the attacker sends only packets that ordinary sockets can send.
type attacker struct {
	service         netip.Addr
	switches, nodes []netip.Addr
	victim          netip.AddrPort
	key             wire.Key
	keys, count     int
	profile         wire.Profile
	seconds         float64

	own     netip.Addr
	ifindex int
	mac, to net.HardwareAddr
	raw     int                     // the packet socket; -1 if the attacker may not open one
	asking  *net.UDPConn            // socket bound to askPort
	plain   map[uint16]*net.UDPConn // ordinary sockets, by source port
	sent    int                     // number of packets that the kernel has accepted
	// number of packets that the kernel has rejected, or that would need CAP_NET_RAW
	refused int
	answers map[wire.Status]int // number of received answers, by status
}

// attack runs the attacks that its arguments name, and prints for each the number of packets sent
// and the answers.
func attack(args []string) error {
	a := &attacker{plain: map[uint16]*net.UDPConn{}}
	var key string
	var bits int
	f := flag.NewFlagSet("attack", flag.ContinueOnError)
	f.TextVar(&a.service, "service", netip.Addr{}, "the chain's service `ADDRESS`")
	addresses := func(name, usage string, to *[]netip.Addr) {
		f.Func(name, usage, func(text string) error {
			for _, s := range strings.Split(text, ",") {
				addr, err := netip.ParseAddr(s)
				if err != nil {
					return err
				}
				*to = append(*to, addr)
			}
			return nil
		})
	}
	addresses("switches", "the switches' `ADDRESSES`", &a.switches)
	addresses("nodes", "the nodes' `ADDRESSES`", &a.nodes)
	f.TextVar(&a.victim, "victim", netip.AddrPort{}, "`ADDRESS:PORT` of the victim")
	f.StringVar(&key, "key", "0", "`KEY_ID` of what is to be changed")
	f.IntVar(&a.keys, "keys", 16, "number of keys to read from there on")
	f.IntVar(&a.count, "count", 10000, "frames of the attack mutated")
	f.Float64Var(&a.seconds, "seconds", 5, "length of the attacks flood and tunnels")
	f.IntVar(&bits, "value-bits", 128, "width of values")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !a.service.Is4() || f.NArg() == 0 {
		return fmt.Errorf("attack takes --service and the names of attacks")
	}
	var err error
	if a.key, err = wire.ParseKey(key); err != nil {
		return err
	}
	if a.profile = wire.Profile(bits); !a.profile.Valid() {
		return wire.ErrProfile
	}
	if err := a.connect(); err != nil {
		return err
	}
	for _, name := range f.Args() {
		do := attacks[name]
		if do == nil {
			return fmt.Errorf("no such attack: %s", name)
		}
		a.sent, a.refused, a.answers = 0, 0, map[wire.Status]int{}
		do(a)
		a.listen()
		fmt.Printf("%s: sent %d, not sent %d, raw %v, answers %d%s\n", name, a.sent, a.refused, a.raw >= 0, total(a.answers), statuses(a.answers))
	}
	return nil
}

func total(answers map[wire.Status]int) (n int) {
	for _, m := range answers {
		n += m
	}
	return n
}

func statuses(answers map[wire.Status]int) string {
	var out []string
	for s, n := range answers {
		out = append(out, fmt.Sprintf(" %v %d", s, n))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// connect finds the route to the chain, and opens the sockets that it may open.
func (a *attacker) connect() error {
	routes, err := netlink.RouteGet(a.service.AsSlice())
	if err != nil || len(routes) == 0 {
		return fmt.Errorf("the way to %s: %w", a.service, err)
	}
	r := routes[0]
	a.own, _ = netip.AddrFromSlice(r.Src.To4())
	a.ifindex = r.LinkIndex
	l, err := net.InterfaceByIndex(r.LinkIndex)
	if err != nil {
		return err
	}
	a.mac = l.HardwareAddr
	next := r.Gw
	if next == nil {
		next = a.service.AsSlice()
	}
	if a.asking, err = net.ListenUDP("udp4", &net.UDPAddr{Port: askPort}); err != nil {
		return err
	}
	a.plain[askPort] = a.asking
	for end := time.Now().Add(patience); a.to == nil; time.Sleep(10 * time.Millisecond) {
		// This packet makes the kernel resolve the Ethernet address of the next hop.
		_, _ = a.asking.WriteTo([]byte("who are you"), &net.UDPAddr{IP: next, Port: 9})
		neighbours, err := netlink.NeighList(r.LinkIndex, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.IP.Equal(next) && len(n.HardwareAddr) == 6 {
				a.to = n.HardwareAddr
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not say its Ethernet address", next)
		}
	}
	a.raw, err = packetSocket(a.ifindex)
	if errors.Is(err, unix.EPERM) {
		a.raw = -1
		return nil
	}
	return err
}

// packetSocket opens a packet socket on an interface. The socket bypasses the interface's queueing
// discipline.
func packetSocket(ifindex int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("a packet socket: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex}))
	return fd, err
}

// frames sends Ethernet frames unchanged.
func (a *attacker) frames(frames ...[]byte) {
	for _, f := range frames {
		var err error = unix.EPERM
		if a.raw >= 0 {
			err = unix.ENOBUFS
			for try := 0; try < 100 && errors.Is(err, unix.ENOBUFS); try++ {
				_, err = unix.Write(a.raw, f)
			}
		}
		a.count1(err)
	}
}

func (a *attacker) count1(err error) {
	if err == nil {
		a.sent++
	} else {
		a.refused++
	}
}

// send sends a packet as a frame. Without a packet socket, it uses an ordinary socket if the packet
// has the attacker's own source address.
func (a *attacker) send(p udptest.Packet) {
	if a.raw >= 0 {
		a.frames(p.Frame())
		return
	}
	a.count1(a.ordinary(p, nil))
}

// ordinary sends a packet through an ordinary socket, with IP options if there are any.
func (a *attacker) ordinary(p udptest.Packet, options []byte) error {
	if p.Src.Addr() != a.own {
		return unix.EPERM
	}
	c := a.plain[p.Src.Port()]
	if c == nil {
		var err error
		if c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: int(p.Src.Port())}); err != nil {
			return err
		}
		a.plain[p.Src.Port()] = c
	}
	sys, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := sys.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, string(options))
	}); e != nil || err != nil {
		return cmp.Or(e, err)
	}
	_, err = c.WriteTo(p.Payload, net.UDPAddrFromAddrPort(p.Dst))
	return err
}

// packet returns a packet to NetCRAQ's port. Its source is the attacker's own address or a forged
// address.
func (a *attacker) packet(from netip.Addr, to netip.Addr, w wire.Packet) udptest.Packet {
	b, err := w.Marshal(a.profile)
	if err != nil {
		panic(err) // the forged packets are all well-formed
	}
	return udptest.Packet{EthernetDst: a.to, EthernetSrc: a.mac, Src: netip.AddrPortFrom(from, askPort),
		Dst: netip.AddrPortFrom(to, wire.Port), Payload: b, Mark: len(b) - 2}
}

// targets returns the addresses that accept NetCRAQ packets.
func (a *attacker) targets() []netip.Addr { return append([]netip.Addr{a.service}, a.switches...) }

// each sends a packet with the message w to every target.
func (a *attacker) each(w wire.Packet) {
	for _, to := range a.targets() {
		a.send(a.packet(a.own, to, w))
	}
}

func (a *attacker) reads() {
	for i := range a.keys {
		for _, flags := range []wire.Flags{0, wire.Eventual} {
			a.each(wire.Packet{Op: wire.Read, Flags: flags, Key: a.key + wire.Key(i)})
		}
	}
}

// changes returns requests that would change a key if a switch executed them.
func (a *attacker) changes() []wire.Packet {
	value := []byte(forged)
	return []wire.Packet{
		{Op: wire.Write, Key: a.key, Value: value},
		{Op: wire.Write, Key: a.key, Tombstone: true},
		{Op: wire.CAS, Key: a.key, Value: value},
		{Op: wire.CAS, Key: a.key, Version: wire.MakeVersion(1, 1), Value: value},
	}
}

func (a *attacker) writes() {
	for _, w := range a.changes() {
		a.each(w)
	}
}

// sessions tries to use up the request numbers of every session, including those that will be
// leased next.
func (a *attacker) sessions() {
	for s := uint16(1); s < 4096; s++ {
		for _, request := range []uint32{0xFFFFFFFF, 1, 1025} {
			a.send(a.packet(a.own, a.service, wire.Packet{Op: wire.Write, Key: a.key, Session: s,
				Request: request, Value: []byte(forged)}))
		}
	}
}

// believed returns messages that switches should accept only from other switches and from the
// controller.
func (a *attacker) believed() (out []wire.Packet) {
	value := []byte(forged)
	for epoch := uint16(1); epoch <= 20; epoch++ {
		version := wire.MakeVersion(epoch, 1000)
		out = append(out, wire.Packet{Op: wire.Ack, Key: a.key, Epoch: epoch, Version: version, Value: value},
			wire.Packet{Op: wire.Write, Flags: wire.Stamped, Key: a.key, Epoch: epoch, Version: version, Value: value},
			wire.Packet{Op: wire.Write, Flags: wire.Stamped | wire.NoReply, Key: a.key, Epoch: epoch,
				Version: version, Value: value},
			wire.Packet{Op: wire.Sync, Key: a.key, Epoch: epoch, Version: version, Value: value})
	}
	return append(out, wire.Packet{Op: wire.Write, Flags: wire.ToHead, Key: a.key, Value: value},
		wire.Packet{Op: wire.Read, Flags: wire.DirtyForwarded, Key: a.key},
		wire.Packet{Op: wire.Sync, Flags: wire.Session | wire.Newest, Session: 1, Request: 0xFFFFFFF0, Tombstone: true},
		wire.Packet{Op: wire.Lease, Key: a.key, Request: 1},
		wire.Packet{Op: wire.Fetch, Key: a.key})
}

func (a *attacker) stamped() {
	for _, w := range a.believed() {
		if w.Op != wire.Ack {
			a.each(w)
		}
	}
}

func (a *attacker) acks() {
	for _, w := range a.believed() {
		if w.Op != wire.Ack {
			continue
		}
		for _, to := range a.targets() {
			p := a.packet(a.own, to, w)
			a.send(p)
			p.Src = netip.AddrPortFrom(a.own, wire.Port)
			a.send(p)
		}
	}
}

// answersTo returns answers such as the chain would send to the victim if the victim had sent
// requests.
func (a *attacker) answersTo(from netip.Addr) (out []udptest.Packet) {
	for _, op := range []wire.Op{wire.ReadReply, wire.WriteReply, wire.CASReply} {
		for request := range uint32(8) {
			p := a.packet(from, a.victim.Addr(), wire.Packet{Op: op, Key: a.key, Request: request,
				Version: wire.MakeVersion(100, 1), Value: []byte(forged)})
			p.Src, p.Dst = netip.AddrPortFrom(from, wire.Port), a.victim
			out = append(out, p)
		}
	}
	return out
}

func (a *attacker) replies() {
	for _, from := range append([]netip.Addr{a.own}, a.targets()...) {
		for _, p := range a.answersTo(from) {
			a.send(p)
		}
	}
}

func (a *attacker) spoofed() {
	for _, from := range slices.Concat(a.nodes, a.targets(), []netip.Addr{a.victim.Addr()}) {
		for _, to := range a.targets() {
			for _, w := range append(a.changes(), wire.Packet{Op: wire.Read, Key: a.key}) {
				a.send(a.packet(from, to, w))
			}
		}
	}
}

// kinds returns one packet of each harmful kind. The method wrapped uses them.
func (a *attacker) kinds() []udptest.Packet {
	var out []udptest.Packet
	for _, to := range a.targets() {
		p := a.packet(a.own, to, wire.Packet{Op: wire.Ack, Key: a.key, Epoch: 2, Version: wire.MakeVersion(2,
			1000), Value: []byte(forged)})
		p.Src = netip.AddrPortFrom(a.own, wire.Port)
		out = append(out, p, a.packet(a.own, to, a.changes()[0]),
			a.packet(a.own, to, wire.Packet{Op: wire.Write, Key: a.key, Session: 65, Request: 0xFFFFFFFF,
				Value: []byte(forged)}))
	}
	return append(out, a.answersTo(a.service)[0])
}

// wrapped sends the packets of kinds with VLAN tags, with IP options or in fragments.
func (a *attacker) wrapped(what string) {
	for _, p := range a.kinds() {
		if a.raw >= 0 {
			for _, way := range udptest.Wrap(p) {
				if strings.Contains(way.Name, what) {
					a.frames(way.Frames...)
				}
			}
			continue
		}
		switch what {
		case "option":
			a.count1(a.ordinary(p, []byte{1, 1, 1, 1}))
			a.count1(a.ordinary(p, []byte(strings.Repeat("\x01", 40))))
		case "fragment": // The first fragment has all headers.
			p.Payload = append(slices.Clone(p.Payload), make([]byte, 4000)...)
			a.count1(a.ordinary(p, nil))
		default:
			a.count1(unix.EPERM)
		}
	}
}

// vxlan sends messages of switches inside VXLAN packets, as if they came through a tunnel from
// another node.
func (a *attacker) vxlan() {
	for i, from := range a.nodes {
		for j, to := range a.nodes {
			if i == j {
				continue
			}
			for _, w := range []wire.Packet{a.believed()[0], a.believed()[1]} {
				inner := a.packet(a.switches[min(i, len(a.switches)-1)], a.switches[min(j, len(a.switches)-1)], w)
				payload := append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0},
					uint32(podroutes.PeerVNI(from, to))<<8), inner.Frame()...)
				for _, source := range []netip.Addr{a.own, from} {
					p := udptest.Packet{EthernetDst: a.to, EthernetSrc: a.mac, Src: netip.AddrPortFrom(source,
						tunnelPort), Dst: netip.AddrPortFrom(to, podroutes.VXLANPort), Payload: payload,
						Mark: len(payload) - 2}
					if a.raw < 0 {
						a.send(p)
						continue
					}
					for _, way := range udptest.Wrap(p) {
						a.frames(way.Frames...)
					}
				}
			}
		}
	}
}

// mutated sends randomly changed frames, and prints the seed.
func (a *attacker) mutated() {
	seed := rand.Uint64()
	fmt.Printf("mutated: seed %d\n", seed)
	r := rand.New(rand.NewPCG(seed, 14))
	kinds := a.kinds()
	for _, w := range append(a.believed(), a.changes()...) {
		kinds = append(kinds, a.packet(a.own, a.service, w))
	}
	for range a.count {
		a.frames(udptest.Mutate(r, kinds[r.IntN(len(kinds))]))
	}
}

// flood sends requests as fast as the machine can, on all CPUs.
func (a *attacker) flood() {
	end := time.Now().Add(time.Duration(a.seconds * float64(time.Second)))
	packets := []udptest.Packet{a.packet(a.own, a.service, a.changes()[0]), a.packet(a.own, a.service,
		wire.Packet{Op: wire.Read, Key: a.key})}
	var sent, refused atomic.Int64
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			write := func(p udptest.Packet) error { return unix.EPERM }
			if a.raw >= 0 {
				fd, err := packetSocket(a.ifindex)
				if err != nil {
					refused.Add(1)
					return
				}
				defer unix.Close(fd)
				frames := map[string][]byte{}
				for _, p := range packets {
					frames[string(p.Payload)] = p.Frame()
				}
				write = func(p udptest.Packet) error { _, err := unix.Write(fd, frames[string(p.Payload)]); return err }
			} else if c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: a.service.AsSlice(),
				Port: wire.Port}); err == nil {
				defer c.Close()
				write = func(p udptest.Packet) error { _, err := c.Write(p.Payload); return err }
			}
			for i := 0; time.Now().Before(end); i++ {
				if write(packets[i%len(packets)]) == nil {
					sent.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	a.sent, a.refused = int(sent.Load()), int(refused.Load())
	fmt.Printf("flood: %.0f packets a second\n", float64(a.sent)/a.seconds)
}

// listen counts the answers to the attacker.
func (a *attacker) listen() {
	b := make([]byte, 4096)
	for _, c := range a.plain {
		_ = c.SetReadDeadline(time.Now().Add(settle))
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				continue // This is the ICMP error of a closed port.
			}
			var p wire.Packet
			if from.Port() == wire.Port && p.Unmarshal(b[:n], a.profile) == nil {
				a.answers[p.Status]++
			}
		}
	}
}
