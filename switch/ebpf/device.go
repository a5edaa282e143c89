package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/internal/boottime"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/target"
)

// Options are what a switch needs to know.
type Options struct {
	// Why says why this engine was chosen, for people.
	Why string
	// Hook says where programs are attached.
	Hook Hook
	// CPUPort is the port whose frames go to and come from the controller; 0 for none.
	CPUPort uint32
	// DropPort is what a program writes to egress_spec to drop a packet. 0 means v1model's 511.
	DropPort uint32
	// OnlyUDP, if not 0, leaves interfaces to the host but for one UDP port: the program gets IPv4 packets to or from it; those of them that are tagged, fragments or carry
	// IP options are dropped; all other frames go on to the host's stack. The interfaces keep their offloads, but for XDP: plain UDP is merged by none that is on by default.
	OnlyUDP uint16
	// Tap, if not nil, is called with each frame as it comes in by a port and as it goes out by one. It must not keep the frame. When the process does not keep up, frames
	// are missed.
	Tap func(at time.Time, port uint32, out bool, frame []byte)
	// Log receives what happens to ports. nil means slog.Default().
	Log *slog.Logger

	clsact   bool // attach with clsact where tcx is there, too: for tests
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
	home    *attach.Namespace
	clsact  bool // the kernel has no tcx
	watcher *watcher
	*runtime.Switch

	mu        sync.Mutex // guards what follows
	closed    bool
	ports     map[uint32]*port
	pipeline  *runtime.Pipeline
	blind     bool                             // interfaces could not be looked at, which was said
	committed atomic.Pointer[runtime.Pipeline] // the same, for who does not hold mu

	handlers sync.Mutex
	onPacket func([]byte)
	onDigest func(target.Digest)
}

// port is one port with its interface.
type port struct {
	target.Port
	attach.Attachment                     // nothing is attached while no program is committed
	why               string              // it is where it is
	peer              *attach.Peer        // nil but for a veth at XDP
	zero, seen        target.PortCounters // the interface's counts when it became the port, and when they were last read
	settings          *offload.Change
	tags              *offload.Change // of those too, where XDP meets the frames
	gone              bool            // the interface is not there
}

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
	if opts.Hook == HookClsact {
		opts.Hook, opts.clsact = HookTC, true
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
	if d.home, err = attach.EnterNamespace(); err != nil {
		return nil, err
	}
	d.clsact = opts.clsact || !attach.HasTCX()
	if err := d.home.Do(offload.Recover); err != nil {
		d.log.Warn("what a dead switch changed on interfaces may still be changed", "err", err)
	}
	s := compile.Settings{CPUPort: opts.CPUPort, DropPort: opts.DropPort, OnlyUDP: opts.OnlyUDP, Captured: opts.captured, Unlocked: opts.unlocked, Started: boottime.Now()}
	if d.Switch, err = runtime.NewSwitch(s, opts.Hook != HookTC, d.log, d.handPacket, d.handDigest, d.handTapped()); err != nil {
		return nil, err
	}
	if d.watcher, err = d.watch(); err != nil {
		return nil, err
	}
	if opts.CPUPort != 0 {
		d.PortMap.SetPort(compile.Loopback, opts.CPUPort)
	}
	return d, nil
}

// SetInterface makes an interface that of a port; 0 is none.
func (d *device) setInterface(number uint32, ifindex int) {
	some := ifindex
	for _, q := range d.ports {
		if some == 0 && q.Number != number && !q.gone {
			some = q.Ifindex
		}
	}
	d.PortMap.SetInterface(number, ifindex, some)
}

// Engine implements [target.Device].
func (d *device) Engine() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := map[Hook]int{}
	for _, q := range d.ports {
		at[q.At]++
	}
	where := "tc"
	switch {
	case at[HookXDP] > 0 && at[HookTC] > 0:
		where = fmt.Sprintf("XDP (%d ports) and tc (%d)", at[HookXDP], at[HookTC])
	case at[HookXDP] > 0:
		where = "XDP"
	}
	if d.clsact {
		where += " (clsact)"
	}
	if d.opts.Why == "" {
		return "ebpf at " + where
	}
	return "ebpf at " + where + ": " + d.opts.Why
}

// Verify implements [target.Device].
func (d *device) Verify(prog *bmv2json.Program) error {
	p, err := runtime.NewPipeline(prog, d.Switch)
	if p != nil {
		p.Close()
	}
	return err
}

// Commit implements [target.Device]. The new program takes over port by port; a packet is processed by one of the two as a whole.
func (d *device) Commit(prog *bmv2json.Program) error {
	p, err := runtime.NewPipeline(prog, d.Switch)
	if err != nil {
		return err
	}
	if err := d.Activate(p, nil); err != nil {
		p.Close()
		return err
	}
	return nil
}

// Prepare implements [target.Preparer].
func (d *device) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	p, err := runtime.NewPipeline(prog, d.Switch)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Activate implements [target.Preparer]. While handOver runs no port is one: frames that come are dropped.
func (d *device) Activate(next target.Pipeline, handOver func() error) error {
	p, ok := next.(*runtime.Pipeline)
	if !ok {
		return fmt.Errorf("activating a pipeline of another engine (%T): %w", next, target.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return attach.ErrClosed
	}
	old := d.pipeline
	if p == old {
		return nil
	}
	if handOver != nil {
		for _, q := range d.ports {
			d.PortMap.SetPort(q.Ifindex, runtime.NoPort)
		}
		defer func() {
			for _, q := range d.ports {
				d.PortMap.SetPort(q.Ifindex, q.Number)
			}
		}()
		runtime.WaitForPackets()
		if err := handOver(); err != nil {
			return err
		}
	}
	if old != nil {
		d.PortMap.SetPrevious(old.Number)
		defer d.PortMap.SetPrevious(0)
	}
	var finishes []func()
	defer func() {
		runtime.WaitForPackets()
		_ = d.home.Do(func() error {
			for _, finish := range finishes {
				finish()
			}
			return nil
		})
	}()
	for _, q := range d.ports {
		finish, err := d.attach(q, p)
		finishes = append(finishes, finish)
		if err == nil {
			continue
		}
		for _, r := range d.ports { // all back to what was
			if old != nil {
				finish, e := d.attach(r, old)
				finishes, err = append(finishes, finish), errors.Join(err, e)
			} else {
				_ = d.home.Do(func() error { r.Close(); return nil })
			}
		}
		return err
	}
	d.pipeline = p
	d.committed.Store(p)
	if old != nil {
		runtime.WaitForPackets()
		old.Close()
	}
	return nil
}

// attach makes a pipeline's programs those of a port. finish is to be called when all frames that were on their way are gone.
func (d *device) attach(q *port, p *runtime.Pipeline) (finish func(), err error) {
	finish = func() {}
	if q.gone {
		return finish, nil
	}
	err = d.home.Do(func() error {
		finish, err = q.Change(p.TC, p.XDP)
		return err
	})
	if err != nil && q.At == HookXDP && q.XDP == nil && q.Attached() {
		// The driver was asked in vain. At tc the port works as well.
		d.atTC(q, err.Error())
		err = nil
	}
	if err == nil {
		d.refresh(q)
	}
	return finish, err
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
		return attach.ErrClosed
	}
	switch {
	case d.ports[p.Number] != nil:
		return fmt.Errorf("port %d: %w", p.Number, target.ErrExists)
	case p.Number >= compile.MaxPorts-1 || p.Number == d.opts.CPUPort && p.Number != 0 || p.Number == d.opts.DropPort:
		return fmt.Errorf("port %d: the number is taken, or over %d: %w", p.Number, compile.MaxPorts-2, target.ErrInvalid)
	}
	q := &port{Port: p}
	if err := d.open(q); err != nil {
		return err
	}
	d.ports[p.Number] = q
	return nil
}

// open finds a port's interface, prepares it, and attaches the program to it.
func (d *device) open(q *port) error {
	var l netlink.Link
	err := d.home.Do(func() (err error) {
		if l, err = netlink.LinkByName(q.Iface); err != nil {
			return fmt.Errorf("port %d: interface %s: %w", q.Number, q.Iface, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	index := l.Attrs().Index
	if index >= compile.MaxIfindex {
		return fmt.Errorf("port %d: interface %s has the index %d, over %d: %w", q.Number, q.Iface, index, compile.MaxIfindex, target.ErrUnsupported)
	}
	for _, r := range d.ports {
		if r != q && r.Ifindex == index {
			return fmt.Errorf("port %d: interface %s is port %d: %w", q.Number, q.Iface, r.Number, target.ErrExists)
		}
	}
	q.Attachment = attach.New(q.Iface, index, d.clsact)
	q.zero, q.gone = countersOf(l), false
	q.seen = q.zero
	_ = d.home.Do(func() error {
		var err error
		// A program would see one large frame for several.
		off := []offload.Setting{offload.GenericReceive, offload.LargeReceive}
		if d.opts.OnlyUDP != 0 {
			off = nil // TCP's, which the host is faster with
		}
		if q.settings, err = offload.Off(q.Iface, index, off...); err != nil {
			d.log.Warn("frames that came in one by one may be seen as one, or the setting may outlive a kill", "port", q.Number, "iface", q.Iface, "err", err)
		}
		if err := offload.RemoveFilters(l); err != nil {
			d.log.Warn("a dead switch's filter may be left", "port", q.Number, "iface", q.Iface, "err", err)
		}
		return nil
	})
	d.chooseHook(q, l)
	if q.At == HookXDP {
		_ = d.home.Do(func() (err error) {
			if q.tags, err = offload.Off(q.Iface, index, offload.RxVLAN); err != nil {
				d.log.Warn("frames whose 802.1Q tag the device takes off are taken for untagged ones at XDP, or the setting may outlive a kill", "port", q.Number, "iface", q.Iface, "err", err)
			}
			return nil
		})
	}
	d.PortMap.SetPort(index, q.Number)
	d.setInterface(q.Number, index)
	if d.pipeline != nil {
		if _, err := d.attach(q, d.pipeline); err != nil {
			d.forget(q)
			return err
		}
	}
	d.log.Info("port", "port", q.Number, "iface", q.Iface, "hook", q.At, "why", q.why)
	return nil
}

// forget undoes what open has done.
func (d *device) forget(q *port) {
	d.setInterface(q.Number, 0)
	d.PortMap.SetXDP(q.Number, 0)
	d.PortMap.SetPort(q.Ifindex, runtime.NoPort)
	_ = d.home.Do(func() error {
		q.Close()
		if err := errors.Join(q.settings.Restore(), q.tags.Restore()); err != nil {
			d.log.Warn("an interface's settings are not as they were", "iface", q.Iface, "err", err)
		}
		return nil
	})
	if q.peer != nil {
		q.peer.Release()
		q.peer = nil
	}
}

// RemovePort implements [target.Device].
func (d *device) RemovePort(number uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.ports[number]
	if q == nil {
		return fmt.Errorf("port %d: %w", number, target.ErrNotFound)
	}
	if !q.gone {
		d.forget(q)
	}
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
	_ = d.home.Do(func() error {
		for _, q := range d.ports {
			if l, err := netlink.LinkByIndex(q.Ifindex); err == nil {
				q.seen = countersOf(l)
			}
			c := q.seen
			out[q.Port] = target.PortCounters{RxPackets: c.RxPackets - q.zero.RxPackets, RxBytes: c.RxBytes - q.zero.RxBytes,
				TxPackets: c.TxPackets - q.zero.TxPackets, TxBytes: c.TxBytes - q.zero.TxBytes, TxDropped: c.TxDropped - q.zero.TxDropped}
		}
		return nil
	})
	return out
}

// OnPacketIn implements [target.Device].
func (d *device) OnPacketIn(f func([]byte)) {
	d.handlers.Lock()
	d.onPacket = f
	d.handlers.Unlock()
}

// OnDigest implements [target.Device].
func (d *device) OnDigest(f func(target.Digest)) {
	d.handlers.Lock()
	d.onDigest = f
	d.handlers.Unlock()
}

// handPacket gives a packet-in to who asked for them.
func (d *device) handPacket(frame []byte) {
	d.handlers.Lock()
	handle := d.onPacket
	d.handlers.Unlock()
	handle(frame)
}

// handTapped gives records of the tap's ring to Options.Tap; nil where there is none.
func (d *device) handTapped() func(record []byte) {
	if d.opts.Tap == nil {
		return nil
	}
	var wall wallClock
	return func(b []byte) {
		d.opts.Tap(wall.at(int64(binary.NativeEndian.Uint64(b[8:]))), binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:]) == compile.TapOut, b[compile.TapHeader:])
	}
}

// handDigest gives a digest to who asked for them.
func (d *device) handDigest(record []byte) {
	p := d.committed.Load()
	if p == nil {
		return
	}
	m, ok := p.DecodeDigest(record)
	if !ok { // of a program that is gone
		return
	}
	d.handlers.Lock()
	handle := d.onDigest
	d.handlers.Unlock()
	handle(m)
}

// Now implements [target.Device].
func (d *device) Now() time.Duration { return boottime.Since(d.Started) }

// Close implements [target.Device].
func (d *device) Close() error {
	if d.watcher != nil {
		d.watcher.stop()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	for _, q := range d.ports {
		if !q.gone {
			d.forget(q)
		}
	}
	if d.Switch != nil {
		d.CloseRings()
	}
	if d.pipeline != nil {
		runtime.WaitForPackets()
		d.pipeline.Close()
	}
	if d.home != nil {
		d.home.Close() // after the packet-outs that are under way
	}
	if d.Switch != nil {
		d.Switch.Close()
	}
	return nil
}
