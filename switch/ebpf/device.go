package ebpf

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ports"
	"github.com/netcraq/netcraq/switch/target"
)

// Options are what a switch needs to know.
type Options struct {
	// Why says why this engine was chosen, for people.
	Why string
	// CPUPort is the port whose frames go to and come from the controller; 0 for none.
	CPUPort uint32
	// DropPort is what a program writes to egress_spec to drop a packet. 0 means v1model's 511.
	DropPort uint32
	// Log receives what happens to ports. nil means slog.Default().
	Log *slog.Logger

	captured bool // frames go to OnPacketIn after their port's number (4 bytes), not out: for tests without interfaces
	unlocked bool // packets take no lock: for the test that shows what it is for
}

// Device is what New makes.
type Device interface {
	target.Device
	target.Preparer
}

// device implements Device.
type device struct {
	opts    Options
	log     *slog.Logger
	home    *namespace
	started int64 // of the kernel's monotonic clock
	portMap *state
	buffer  *ebpf.Map

	packetIn *ebpf.Map
	reader   *ringbuf.Reader
	readers  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	ports    map[uint32]*port
	pipeline *pipeline

	handlers sync.Mutex
	onPacket func([]byte)
	onDigest func(target.Digest)
}

// port is one port with its interface.
type port struct {
	target.Port
	ifindex int
	link    link.Link // nil while no program is committed
	zero    target.PortCounters
	restore func() // of the interface's settings
}

const packetInRing = 1 << 20

// New makes a switch without ports or program, in the network namespace of the calling thread. The error says what the kernel or the process lacks.
func New(opts Options) (Device, error) {
	d, err := newDevice(opts)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func newDevice(opts Options) (d *device, err error) {
	if opts.DropPort == 0 {
		opts.DropPort = 511
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if err := Probe(); err != nil {
		return nil, err
	}
	d = &device{opts: opts, log: opts.Log, ports: map[uint32]*port{}, onPacket: func([]byte) {}, onDigest: func(target.Digest) {}}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("reading the clock: %w", err)
	}
	d.started = now.Nano()
	if d.home, err = enterNamespace(); err != nil {
		return nil, err
	}
	if d.portMap, err = newState(portsSize); err != nil {
		return nil, err
	}
	if d.buffer, err = newMapIn(ebpf.MapSpec{Name: "buffer", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: bufferSize, MaxEntries: 1}); err != nil {
		return nil, err
	}
	if d.packetIn, err = newMapIn(ebpf.MapSpec{Name: "packet_in", Type: ebpf.RingBuf, MaxEntries: packetInRing}); err != nil {
		return nil, err
	}
	if d.reader, err = ringbuf.NewReader(d.packetIn); err != nil {
		return nil, fmt.Errorf("reading packet-ins: %w", err)
	}
	d.readers.Go(d.readPackets)
	if opts.CPUPort != 0 {
		// A packet-out is run on the loopback interface, which is 1 in every namespace and never a port.
		d.setPort(1, opts.CPUPort)
	}
	return d, nil
}

func (d *device) readPackets() {
	for {
		rec, err := d.reader.Read()
		if err != nil {
			if !errors.Is(err, ringbuf.ErrClosed) {
				d.log.Error("packet-ins have stopped", "err", err)
			}
			return
		}
		d.handlers.Lock()
		handle := d.onPacket
		d.handlers.Unlock()
		handle(rec.RawSample)
	}
}

// noPort is nobody's number.
const noPort = ^uint32(0)

// setPort makes frames of an interface those of a port, or nobody's.
func (d *device) setPort(ifindex int, number uint32) {
	at := portsByIfindex + ifindex*4
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&d.portMap.mem[at])), number+1)
}

// setInterface makes an interface that of a port; 0 is none.
func (d *device) setInterface(number uint32, ifindex int) {
	at := portsIfindex + int(number)*4
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&d.portMap.mem[at])), uint32(ifindex))
}

// Engine implements [target.Device].
func (d *device) Engine() string {
	if d.opts.Why == "" {
		return "ebpf at tc"
	}
	return "ebpf at tc: " + d.opts.Why
}

// Verify implements [target.Device].
func (d *device) Verify(prog *bmv2json.Program) error {
	p, err := newPipeline(prog, d)
	if p != nil {
		p.close()
	}
	return err
}

// Commit implements [target.Device]. The new program takes over port by port; a packet is processed by one of the two as a whole.
func (d *device) Commit(prog *bmv2json.Program) error {
	p, err := newPipeline(prog, d)
	if err != nil {
		return err
	}
	if err := d.Activate(p, nil); err != nil {
		p.close()
		return err
	}
	return nil
}

// Prepare implements [target.Preparer].
func (d *device) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	p, err := newPipeline(prog, d)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Activate implements [target.Preparer]. While handOver runs no port is one: frames that come are dropped.
func (d *device) Activate(next target.Pipeline, handOver func() error) error {
	p, ok := next.(*pipeline)
	if !ok {
		return fmt.Errorf("activating a pipeline of another engine (%T): %w", next, target.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	old := d.pipeline
	if p == old {
		return nil
	}
	if handOver != nil {
		for _, q := range d.ports {
			d.setPort(q.ifindex, noPort)
		}
		defer func() {
			for _, q := range d.ports {
				d.setPort(q.ifindex, q.Number)
			}
		}()
		waitForPackets()
		if err := handOver(); err != nil {
			return err
		}
	}
	for _, q := range d.ports {
		err := d.attach(q, p)
		if err == nil {
			continue
		}
		for _, r := range d.ports { // all back to what was
			switch {
			case old != nil:
				err = errors.Join(err, d.attach(r, old))
			case r.link != nil:
				_ = r.link.Close()
				r.link = nil
			}
		}
		return err
	}
	d.pipeline = p
	if old != nil {
		waitForPackets()
		old.close()
	}
	return nil
}

// attach makes a program that of a port.
func (d *device) attach(q *port, p *pipeline) error {
	if q.link != nil {
		if err := q.link.Update(p.program); err != nil {
			return fmt.Errorf("changing the program at %s: %w", q.Iface, err)
		}
		return nil
	}
	return d.home.do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: q.ifindex, Program: p.program, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attaching the program to %s: %w", q.Iface, err)
		}
		q.link = l
		return nil
	})
}

// Pipeline implements [target.Device].
func (d *device) Pipeline() target.Pipeline {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipeline == nil {
		return nil
	}
	return d.pipeline
}

// AddPort implements [target.Device].
func (d *device) AddPort(p target.Port) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	switch {
	case d.ports[p.Number] != nil:
		return fmt.Errorf("port %d: %w", p.Number, target.ErrExists)
	case p.Number >= maxPorts-1 || p.Number == d.opts.CPUPort && p.Number != 0 || p.Number == d.opts.DropPort:
		return fmt.Errorf("port %d: the number is taken, or over %d: %w", p.Number, maxPorts-2, target.ErrInvalid)
	}
	q := &port{Port: p, restore: func() {}}
	err := d.home.do(func() error {
		l, err := netlink.LinkByName(p.Iface)
		if err != nil {
			return fmt.Errorf("port %d: interface %s: %w", p.Number, p.Iface, err)
		}
		q.ifindex = l.Attrs().Index
		q.zero = countersOf(l)
		q.restore, err = ports.DisableMerging(p.Iface)
		if err != nil {
			d.log.Warn("frames that came in one by one may be seen as one", "port", p.Number, "iface", p.Iface, "err", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if q.ifindex >= maxIfindex {
		return fmt.Errorf("port %d: interface %s has the index %d, over %d: %w", p.Number, p.Iface, q.ifindex, maxIfindex, target.ErrUnsupported)
	}
	for _, r := range d.ports {
		if r.ifindex == q.ifindex {
			return fmt.Errorf("port %d: interface %s is port %d: %w", p.Number, p.Iface, r.Number, target.ErrExists)
		}
	}
	d.setPort(q.ifindex, p.Number)
	d.setInterface(p.Number, q.ifindex)
	if d.pipeline != nil {
		if err := d.attach(q, d.pipeline); err != nil {
			d.forget(q)
			return err
		}
	}
	d.ports[p.Number] = q
	return nil
}

// forget undoes what AddPort has told the programs.
func (d *device) forget(q *port) {
	d.setInterface(q.Number, 0)
	d.setPort(q.ifindex, noPort)
	if q.link != nil {
		_ = q.link.Close()
	}
	_ = d.home.do(func() error { q.restore(); return nil })
}

// RemovePort implements [target.Device].
func (d *device) RemovePort(number uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.ports[number]
	if q == nil {
		return fmt.Errorf("port %d: %w", number, target.ErrNotFound)
	}
	d.forget(q)
	delete(d.ports, number)
	return nil
}

func countersOf(l netlink.Link) target.PortCounters {
	s := l.Attrs().Statistics
	if s == nil {
		return target.PortCounters{}
	}
	return target.PortCounters{RxPackets: s.RxPackets, RxBytes: s.RxBytes, TxPackets: s.TxPackets, TxBytes: s.TxBytes, TxDropped: s.TxDropped}
}

// Ports implements [target.Device]. The counts are the interfaces', since they became ports.
func (d *device) Ports() map[target.Port]target.PortCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[target.Port]target.PortCounters{}
	_ = d.home.do(func() error {
		for _, q := range d.ports {
			var c target.PortCounters
			if l, err := netlink.LinkByIndex(q.ifindex); err == nil {
				c = countersOf(l)
			}
			out[q.Port] = target.PortCounters{RxPackets: c.RxPackets - q.zero.RxPackets, RxBytes: c.RxBytes - q.zero.RxBytes,
				TxPackets: c.TxPackets - q.zero.TxPackets, TxBytes: c.TxBytes - q.zero.TxBytes, TxDropped: c.TxDropped - q.zero.TxDropped}
		}
		return nil
	})
	return out
}

// PacketOut implements [target.Device]: the program is run on the frame as if it had come in by the CPU port.
func (d *device) PacketOut(frame []byte) error {
	d.mu.Lock()
	p := d.pipeline
	d.mu.Unlock()
	if p == nil {
		return fmt.Errorf("packet-out: %w", target.ErrNoPipeline)
	}
	if d.opts.CPUPort == 0 {
		return fmt.Errorf("packet-out: the switch has no CPU port: %w", target.ErrInvalid)
	}
	const least = 15 // what the kernel takes for a frame: an Ethernet header and something
	if len(frame) < least {
		return fmt.Errorf("packet-out of %d bytes (at least %d): %w", len(frame), least, target.ErrInvalid)
	}
	return d.home.do(func() error {
		if _, err := p.program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			return fmt.Errorf("packet-out of %d bytes: %w", len(frame), err)
		}
		return nil
	})
}

// OnPacketIn implements [target.Device].
func (d *device) OnPacketIn(f func([]byte)) {
	d.handlers.Lock()
	d.onPacket = f
	d.handlers.Unlock()
}

// OnDigest implements [target.Device]. Programs that send digests are refused, so f is never called.
func (d *device) OnDigest(f func(target.Digest)) {
	d.handlers.Lock()
	d.onDigest = f
	d.handlers.Unlock()
}

// Now implements [target.Device].
func (d *device) Now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano() - d.started)
}

// Close implements [target.Device].
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	for _, q := range d.ports {
		d.forget(q)
	}
	if d.reader != nil {
		d.reader.Close()
		d.readers.Wait()
	}
	if d.pipeline != nil {
		waitForPackets()
		d.pipeline.close()
	}
	for _, m := range []*ebpf.Map{d.buffer, d.packetIn} {
		if m != nil {
			m.Close()
		}
	}
	if d.portMap != nil {
		d.portMap.close()
	}
	if d.home != nil {
		d.home.close()
	}
	return nil
}
