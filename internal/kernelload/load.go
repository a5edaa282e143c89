// Package kernelload generates load on switches from within the kernel. Its closed loop costs a
// fraction of what a loop with a socket costs, so the measurement shows the switch and not the
// generator.
//
//	           ┌───────────────── the client's interface ─────────────────┐
//	answer ──▶ │ whose is it? how long did it take? is the value right?    │
//	query  ◀── │ the next operation, key and request number, in its place  │
//	           └───────────────────────────────────────────────────────────┘
//
// A program at the interface's tc ingress hook turns each answer into the next query and sends it
// back. This process only sends the first query of each slot, resends lost queries, and reads the
// counters. A slot is one outstanding query, with its own UDP port and session. The value of a
// write holds its key and its request number, both at the beginning and at the end. So the program
// detects a value of another key and a torn value, and counts them as wrong.
//
// The CPU that sends a frame over a veth pair also processes it. So with a switch in the kernel,
// generator and switch run on the CPU that sent the first query. Each of Config.CPUs therefore
// needs one core in total. A switch in a process works on its own CPU, and the generator's part of
// each query runs there, when the switch sends the answer.
package kernelload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
)

//go:generate go tool bpf2go -target bpfel kernel kernel.c -- -mcpu=v3 -Wall -Wextra -Werror

// These constants have the same values in kernel.c.
const (
	maxSlots   = len(kernelShared{}.Slots)
	cells      = 4096 // number of histogram cells of fineStep nanoseconds, and also of cells of coarseStep nanoseconds
	fineStep   = 100
	coarseStep = 10_000
)

const headers = 14 + 20 + 8 // number of bytes of a frame before the protocol's payload

// Session is a session for writes. Each slot has its own session.
type Session struct {
	ID          uint16
	NextRequest uint32
}

// Config configures a run. Everything happens in the calling thread's network namespace.
type Config struct {
	Iface  string     // the client's interface
	Source netip.Addr // the client's address
	// Target is the service address of a chain, or the address of a switch. It is unused if
	// Protocol is set.
	Target   netip.AddrPort
	Gateway  [6]byte // the Ethernet address of the next hop to the target
	Profile  wire.Profile
	Protocol Protocol   // nil stands for NetCRAQ's protocol, to Target, with values of Profile
	Keys     []wire.Key // the keys, which are drawn uniformly or by Weights
	Weights  []float64
	Sessions []Session // one session for each of Outstanding, if WritePercent is above 0

	Outstanding  int // number of outstanding queries, from 1 to 1,024
	WritePercent int
	FirstPort    uint16 // UDP port of the first slot; the next ports are those of the other slots
	// Begin is the time of the first queries. It allows several loads to start together. Zero means
	// now.
	Begin    time.Time
	Duration time.Duration
	Resend   time.Duration // time after which an unanswered query is resent
	// CPUs lists the CPUs that send the slots' first queries, in turn. If it is empty, any CPU
	// does.
	CPUs      []int
	Reflected bool // the target is a reflector, so answers are the queries with swapped addresses
	Seed      uint64
}

// Report is the result of a run.
type Report struct {
	Elapsed time.Duration
	Read    OpReport
	Write   OpReport
	Resent  uint64 // number of queries that were resent because they had no answer
	Stray   uint64 // number of duplicate answers, and of answers to no query
	Wrong   uint64 // number of answers with a wrong value or key
}

// OpReport is the result of one operation.
type OpReport struct {
	Answered uint64
	Status   [32]uint64 // number of answers by status; unused for reflected queries
	// Histogram counts answers by latency. It has 4,096 cells of 100 ns, and then 4,096 cells of 10
	// us. The last cell includes all longer latencies.
	Histogram []uint64
}

// Rate returns the number of answers a second.
func (r *Report) Rate() float64 {
	return float64(r.Read.Answered+r.Write.Answered) / r.Elapsed.Seconds()
}

// Quantile returns a latency that a share q of the answers did not exceed. It is the upper end of a
// cell of the histogram.
func (o *OpReport) Quantile(q float64) time.Duration {
	var total uint64
	for _, n := range o.Histogram {
		total += n
	}
	if total == 0 {
		return 0
	}
	var sum uint64
	for i, n := range o.Histogram {
		sum += n
		if float64(sum) >= q*float64(total) {
			if i < cells {
				return time.Duration(i+1) * fineStep
			}
			return time.Duration(i-cells+1) * coarseStep
		}
	}
	return cells * coarseStep
}

func (c *Config) check() error {
	switch {
	case !c.Source.Is4() || c.Protocol == nil && !c.Target.Addr().Is4():
		return fmt.Errorf("addresses %v and %v are not both IPv4", c.Source, c.Target)
	case c.Outstanding < 1 || c.Outstanding > maxSlots:
		return fmt.Errorf("%d queries cannot be on their way at once: 1 to %d can", c.Outstanding,
			maxSlots)
	case int(c.FirstPort)+c.Outstanding > 65536 || c.FirstPort == 0:
		return fmt.Errorf("there are no %d UDP ports from %d on", c.Outstanding, c.FirstPort)
	case len(c.Keys) == 0 || len(c.Weights) > 0 && len(c.Weights) != len(c.Keys):
		return errors.New("a load needs keys, and as many weights as keys or none")
	case c.WritePercent < 0 || c.WritePercent > 100:
		return fmt.Errorf("%d is no percentage of writes", c.WritePercent)
	case c.WritePercent > 0 && len(c.Sessions) < c.Outstanding && !c.Reflected &&
		c.protocol().Shape().Session >= 0:
		return fmt.Errorf("%d sessions are too few to have %d writes on their way", len(c.Sessions),
			c.Outstanding)
	case c.Duration <= 0 || c.Resend <= 0:
		return errors.New("a load needs a duration, and a time after which queries are sent again")
	case c.Protocol == nil && !c.Profile.Valid():
		return fmt.Errorf("%w: VALUE_BITS %d", wire.ErrProfile, int(c.Profile))
	}
	return nil
}

// Value returns the value that a load expects for a key. Keys must have such values before they are
// read.
func Value(profile wire.Profile, key wire.Key, request uint32) []byte {
	return value(profile.ValueBytes(), key, request)
}

func value(bytes int, key wire.Key, request uint32) []byte {
	b := make([]byte, bytes)
	word := uint64(key)<<32 | uint64(request)
	binary.BigEndian.PutUint64(b, word)
	binary.BigEndian.PutUint64(b[len(b)-8:], word)
	return b
}

// load is a run of the generator.
type load struct {
	cfg    *Config
	ifi    *net.Interface
	prog   *ebpf.Program
	mem    []byte        // the memory that is mapped into this process
	shared *kernelShared // the same memory, in the form that the program shares
	socket int
	resent uint64
}

// Run generates load on a switch for a while. ctx may end it early, which is not an error.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(cfg.CPUs) > 0 {
		back, err := pin(cfg.CPUs[0])
		if err != nil {
			return nil, err
		}
		defer back()
	}
	l := &load{cfg: &cfg, socket: -1}
	defer l.close()
	if err := l.open(); err != nil {
		return nil, err
	}
	attached, err := link.AttachTCX(link.TCXOptions{Interface: l.ifi.Index, Program: l.prog,
		Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("attaching the load program to %s (it needs root and Linux 6.6): %w",
			cfg.Iface, err)
	}
	defer attached.Close()
	return l.run(ctx)
}

// pin binds the calling thread to one CPU.
func pin(cpu int) (back func(), err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("asking for this thread's CPUs: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("staying on CPU %d: %w", cpu, err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
}

func (l *load) open() (err error) {
	if l.ifi, err = net.InterfaceByName(l.cfg.Iface); err != nil {
		return fmt.Errorf("interface %s: %w", l.cfg.Iface, err)
	}
	if err := l.load(); err != nil {
		return err
	}
	if l.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("a packet socket (it needs root or CAP_NET_RAW): %w", err)
	}
	if err := unix.Bind(l.socket, &unix.SockaddrLinklayer{Ifindex: l.ifi.Index}); err != nil {
		return fmt.Errorf("binding a packet socket to %s: %w", l.cfg.Iface, err)
	}
	return nil
}

// load loads the program into the kernel, and maps the shared memory.
func (l *load) load() error {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("the load program: %w", err)
	}
	if err := spec.Variables[kernelVarShape].Set(l.cfg.shape()); err != nil {
		return fmt.Errorf("the load program's constants: %w", err)
	}
	var loaded struct {
		Program *ebpf.Program `ebpf:"netcraq_load"`
		Shared  *ebpf.Map     `ebpf:".bss"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return fmt.Errorf(
			"loading the load program (it needs root, or CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	l.prog = loaded.Program
	defer loaded.Shared.Close()
	page := unix.Getpagesize()
	if l.mem, err = unix.Mmap(loaded.Shared.FD(), 0,
		(int(unsafe.Sizeof(*l.shared))+page-1)/page*page,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the memory of the load program: %w", err)
	}
	l.shared = (*kernelShared)(unsafe.Pointer(&l.mem[0]))
	return nil
}

func (l *load) close() {
	if l.socket >= 0 {
		unix.Close(l.socket)
	}
	if l.mem != nil {
		_ = unix.Munmap(l.mem)
	}
	if l.prog != nil {
		l.prog.Close()
	}
}

func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// query returns the frame of a slot's outstanding query.
func (l *load) query(slot int) ([]byte, error) {
	at := &l.shared.Slots[slot]
	return l.encode(slot, wire.Op(atomic.LoadUint32(&at.Op)), wire.Key(atomic.LoadUint32(&at.Key)),
		atomic.LoadUint32(&at.Request), uint16(atomic.LoadUint32(&at.Session)))
}

// encode makes a query's frame.
func (l *load) encode(slot int, op wire.Op, key wire.Key, request uint32, session uint16) ([]byte,
	error) {
	to, payload, err := l.cfg.protocol().Query(op, key, request, session)
	if err != nil {
		return nil, err
	}
	f := wire.Frame{EthernetDst: l.cfg.Gateway, Src: netip.AddrPortFrom(l.cfg.Source,
		l.cfg.FirstPort+uint16(slot)), Dst: to}
	copy(f.EthernetSrc[:], l.ifi.HardwareAddr)
	return f.AppendTo(nil, payload)
}

// prepare fills the memory that the program reads.
func (l *load) prepare() error {
	r := rand.New(rand.NewPCG(l.cfg.Seed, 0))
	draw := l.drawer(r)
	for i := range l.shared.Draw {
		l.shared.Draw[i] = uint32(draw())
	}
	for i := range l.cfg.Outstanding {
		at := &l.shared.Slots[i]
		op, session := wire.Read, Session{NextRequest: 1}
		if l.cfg.WritePercent > 0 && r.IntN(100) < l.cfg.WritePercent {
			op = wire.Write
		}
		if len(l.cfg.Sessions) > i {
			session = l.cfg.Sessions[i]
		}
		at.Request, at.Key, at.Op = session.NextRequest, uint32(draw()), uint32(op)
		at.Session, at.Random = uint32(session.ID), r.Uint64()|1
	}
	for i, op := range []wire.Op{wire.Read, wire.Write} {
		template, err := l.encode(0, op, 0, 0, 0)
		if err != nil {
			return err
		}
		into, covered := l.shared.Templates[i][:], l.cfg.protocol().Shape().covered()
		if copy(into, template[:covered]) < covered {
			return fmt.Errorf("a query of %d bytes is too long: %d are the most", covered, len(into))
		}
	}
	return nil
}

// drawer returns a function that draws keys.
func (l *load) drawer(r *rand.Rand) func() wire.Key {
	keys := l.cfg.Keys
	if len(l.cfg.Weights) == 0 {
		return func() wire.Key { return keys[r.IntN(len(keys))] }
	}
	sums := make([]float64, len(keys))
	sum := 0.0
	for i, w := range l.cfg.Weights {
		sum += w
		sums[i] = sum
	}
	return func() wire.Key {
		x := r.Float64() * sum
		lo, hi := 0, len(sums)-1
		for lo < hi {
			if mid := (lo + hi) / 2; sums[mid] > x {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		return keys[lo]
	}
}

// send sends a slot's query, from the slot's CPU.
func (l *load) send(slot int) error {
	if n := len(l.cfg.CPUs); n > 1 {
		if _, err := pin(l.cfg.CPUs[slot%n]); err != nil {
			return err
		}
	}
	frame, err := l.query(slot)
	if err != nil {
		return err
	}
	if _, err := unix.Write(l.socket, frame); err != nil {
		return fmt.Errorf("sending by %s: %w", l.cfg.Iface, err)
	}
	return nil
}

func (l *load) run(ctx context.Context) (*Report, error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	wait := time.NewTimer(time.Until(l.cfg.Begin))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
	begun := now()
	for i := range l.cfg.Outstanding {
		atomic.StoreUint64(&l.shared.Slots[i].Sent, now())
		if err := l.send(i); err != nil {
			return nil, err
		}
	}
	end := time.NewTimer(l.cfg.Duration)
	defer end.Stop()
	tick := time.NewTicker(max(l.cfg.Resend/4, time.Millisecond))
	defer tick.Stop()
	last := make([]uint32, l.cfg.Outstanding) // for each slot, the last request that was resent, and when
	when := make([]uint64, l.cfg.Outstanding)
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-end.C:
			over = true
		case <-tick.C:
			for i := range l.cfg.Outstanding {
				at := &l.shared.Slots[i]
				request, t := atomic.LoadUint32(&at.Request), now()
				since := atomic.LoadUint64(&at.Sent)
				if last[i] == request {
					since = when[i]
				}
				if t < since || t-since < uint64(l.cfg.Resend) {
					continue
				}
				// The program changes a slot quickly. If the slot is unchanged after a moment, its
				// query has no answer.
				time.Sleep(50 * time.Microsecond)
				if atomic.LoadUint32(&at.Request) != request || last[i] != request &&
					atomic.LoadUint64(&at.Sent) != since {
					continue
				}
				last[i], when[i] = request, t
				l.resent++
				if err := l.send(i); err != nil {
					return nil, err
				}
			}
		}
	}
	elapsed := now() - begun
	atomic.StoreUint64(&l.shared.Stop, 1)
	// wait until outstanding queries have ended and no new ones are sent, so that all counters are
	// of the same moment
	time.Sleep(20 * time.Millisecond)
	return l.report(time.Duration(elapsed)), nil
}

func (l *load) report(elapsed time.Duration) *Report {
	r := &Report{Elapsed: elapsed, Resent: l.resent, Stray: atomic.LoadUint64(&l.shared.Stray),
		Wrong: atomic.LoadUint64(&l.shared.Wrong)}
	for op, o := range []*OpReport{&r.Read, &r.Write} {
		for s := range o.Status {
			o.Status[s] = atomic.LoadUint64(&l.shared.Status[op][s])
		}
		o.Histogram = make([]uint64, 2*cells)
		for i := range o.Histogram {
			o.Histogram[i] = atomic.LoadUint64(&l.shared.Histogram[op][i])
			o.Answered += o.Histogram[i]
		}
	}
	return r
}

// Way determines the interface, source address and gateway of packets to a target, as the kernel
// would send them.
func Way(target netip.Addr) (iface string, source netip.Addr, gateway [6]byte, err error) {
	fail := func(err error) (string, netip.Addr, [6]byte, error) {
		return "", netip.Addr{}, [6]byte{}, fmt.Errorf("the way to %v: %w", target, err)
	}
	routes, err := netlink.RouteGet(net.IP(target.AsSlice()))
	if err != nil || len(routes) == 0 {
		return fail(errors.Join(err, errors.New("there is no route")))
	}
	route := routes[0]
	l, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return fail(err)
	}
	next := route.Gw
	if next == nil {
		next = net.IP(target.AsSlice())
	}
	neighbours, err := netlink.NeighList(route.LinkIndex, netlink.FAMILY_V4)
	if err != nil {
		return fail(err)
	}
	for _, n := range neighbours {
		if n.IP.Equal(next) && len(n.HardwareAddr) == 6 {
			source, _ = netip.AddrFromSlice(route.Src.To4())
			copy(gateway[:], n.HardwareAddr)
			return l.Attrs().Name, source, gateway, nil
		}
	}
	return fail(fmt.Errorf(
		"%s does not know the Ethernet address of %v: send it something first (netcraqctl get), or add it (ip neighbour)", l.Attrs().Name, next))
}
