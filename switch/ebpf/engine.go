package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/queues"
	"github.com/netcraq/netcraq/switch/target"
)

// Options configures a switch.
type Options struct {
	// Why is the reason for choosing this engine, for messages to operators.
	Why string
	// Hook selects the hook at which the switch attaches its programs.
	Hook Hook
	// CPUPort is the port for frames to and from the controller, or 0 if there is none.
	CPUPort uint32
	// DropPort is the value of egress_spec that drops a packet. 0 means v1model's 511.
	DropPort uint32
	// OnlyUDP, if not 0, leaves the interfaces to the host except for one UDP port. The program
	// receives IPv4 packets to or from that port. The switch drops such packets if they are tagged,
	// are fragments or have IP options. All other frames go on to the host's stack. The interfaces
	// keep their offloads, except at XDP: no offload that is on by default merges plain UDP.
	OnlyUDP uint16
	// Mark, if not 0, is the packet mark of the frames that the switch sends, so that other
	// programs at an interface can recognize them. Frames that leave through XDP have no mark.
	Mark uint32
	// LateFilters, with HookClsact, places the switch's filters after the filters of other
	// programs.
	LateFilters bool
	// After is the name of another program at tcx. The switch's program runs after that program if
	// it is attached when the port is created. If After is "", the switch's program runs before all
	// others.
	After string
	// Tap, if not nil, is called with each frame as it arrives at a port and as it leaves through
	// one. Tap must not keep the frame. If the process is too slow, Tap misses frames.
	Tap func(at time.Time, port uint32, out bool, frame []byte)
	// Log receives the events of ports. If it is nil, the switch uses slog.Default().
	Log *slog.Logger
	// Restored, if not nil, is called after somebody else detached a program from a port and the
	// switch tried to attach it again. err is nil if that succeeded. Restored must not call the
	// switch.
	Restored func(iface string, err error)

	clsact bool // tests: use clsact even if the kernel has tcx
	// tests without interfaces: frames go to OnPacketIn, after a 4-byte port number, instead of
	// being sent
	captured bool
	unlocked bool // tests: packets take no lock, which shows why the lock is needed
	// tests: the switch does not automatically recompile the program for its tables' content
	general bool
}

// Device is the switch that New returns.
type Device interface {
	target.Device
	target.Preparer
}

// device implements Device.
type device struct {
	opts    Options
	log     *slog.Logger
	netns   *attach.Namespace
	clsact  bool // set if the switch uses clsact, because the kernel has no tcx
	watcher *watcher
	*runtime.Switch

	swapping sync.Mutex    // held while ports change from one program to another; locked before mu
	queues   *queues.Watch // nil while no program reads queue depths; guarded by swapping

	mu       sync.Mutex // guards the following fields
	closed   bool
	ports    map[uint32]*port
	pipeline *runtime.Pipeline
	// set once the log says that interfaces could not be checked
	lookupsFail bool
	looks       int // number of checks of all ports so far
	// the committed pipeline, for code that does not hold mu
	committed atomic.Pointer[runtime.Pipeline]
	// set by Stripe; the switch then does not change the locking mode by itself
	stripesSet atomic.Bool

	handlers sync.Mutex
	onPacket func([]byte)
	onDigest func(target.Digest)
}

// New creates a switch without ports or a program, in the network namespace of the calling thread.
// Its error says what the kernel or the process lacks.
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
	d = &device{opts: opts, log: opts.Log, ports: map[uint32]*port{}, onPacket: func([]byte) {},
		onDigest: func(target.Digest) {}}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.netns, err = attach.EnterNamespace(); err != nil {
		return nil, err
	}
	d.clsact = opts.clsact || !attach.HasTCX()
	if err := d.netns.Do(offload.Recover); err != nil {
		d.log.Warn("what a dead switch changed on interfaces may still be changed", "err", err)
	}
	s := emit.Settings{CPUPort: opts.CPUPort, DropPort: opts.DropPort, OnlyUDP: opts.OnlyUDP,
		Mark: opts.Mark, Captured: opts.captured, Unlocked: opts.unlocked, Started: clock.Now()}
	if d.Switch, err = runtime.NewSwitch(s, opts.Hook != HookTC, d.log, d.deliverPacketIn,
		d.deliverDigest, d.deliverMessage,
		d.tapDelivery()); err != nil {
		return nil, err
	}
	if d.watcher, err = d.watch(); err != nil {
		return nil, err
	}
	if opts.CPUPort != 0 {
		d.PortMap.SetPort(memory.Loopback, opts.CPUPort)
	}
	return d, nil
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

// Commit implements [target.Device]. The new program takes over port by port. Each packet is
// processed by exactly one of the two programs.
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

// Activate implements [target.Preparer]. While handOver runs, no interface is a port, so arriving
// frames are dropped.
func (d *device) Activate(next target.Pipeline, handOver func() error) error {
	p, ok := next.(*runtime.Pipeline)
	if !ok {
		return fmt.Errorf("activating a pipeline of another engine (%T): %w", next,
			target.ErrInvalid)
	}
	d.swapping.Lock()
	defer d.swapping.Unlock()
	defer d.watchQueues()
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
		_ = d.netns.Do(func() error {
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
		for _, r := range d.ports { // restore the previous program on all ports
			if old != nil {
				finish, e := d.attach(r, old)
				finishes, err = append(finishes, finish), errors.Join(err, e)
			} else {
				_ = d.netns.Do(func() error { r.Close(); return nil })
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

// Pipeline implements [target.Device].
func (d *device) Pipeline() target.Pipeline {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipeline == nil {
		return nil
	}
	return d.pipeline
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

// deliverPacketIn passes a frame for the controller to the function that OnPacketIn set.
func (d *device) deliverPacketIn(frame []byte) {
	d.handlers.Lock()
	handle := d.onPacket
	d.handlers.Unlock()
	handle(frame)
}

// tapDelivery returns the function that passes records of the tap's ring to Options.Tap, or nil if
// there is no Tap.
func (d *device) tapDelivery() func(record []byte) {
	if d.opts.Tap == nil {
		return nil
	}
	var wall wallClock
	return func(b []byte) {
		d.opts.Tap(wall.at(int64(binary.NativeEndian.Uint64(b[8:]))), binary.NativeEndian.Uint32(b),
			binary.NativeEndian.Uint32(b[4:]) == memory.TapOut, b[memory.TapHeader:])
	}
}

// deliverDigest passes a digest to the function that OnDigest set.
func (d *device) deliverDigest(record []byte) {
	p := d.committed.Load()
	if p == nil {
		return
	}
	m, ok := p.DecodeDigest(record)
	if !ok { // a program that has been replaced sent the digest
		return
	}
	d.handlers.Lock()
	handle := d.onDigest
	d.handlers.Unlock()
	handle(m)
}

// deliverMessage logs a program's log_msg.
func (d *device) deliverMessage(record []byte) {
	p := d.committed.Load()
	if p == nil {
		return
	}
	if text, ok := p.DecodeMessage(record); ok {
		d.log.Info("program", "says", text)
	}
}

// Now implements [target.Device].
func (d *device) Now() time.Duration { return clock.Since(d.Started) }

// Close implements [target.Device].
func (d *device) Close() error {
	if d.watcher != nil {
		d.watcher.stop()
	}
	d.swapping.Lock()
	defer d.swapping.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if d.queues != nil {
		d.mu.Unlock() // the goroutine that restores programs needs mu
		d.queues.Stop()
		d.mu.Lock()
		d.queues = nil
	}
	for _, q := range d.ports {
		if !q.missing {
			d.closePort(q)
		}
	}
	if d.Switch != nil {
		d.CloseRings()
	}
	if d.pipeline != nil {
		runtime.WaitForPackets()
		d.pipeline.Close()
	}
	if d.netns != nil {
		d.netns.Close() // Close waits for packet-outs that are being processed.
	}
	if d.Switch != nil {
		d.Switch.Close()
	}
	return nil
}
