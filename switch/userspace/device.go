package userspace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/ports"
	"github.com/netcraq/netcraq/switch/target"
)

// Options are the parameters of New. The zero value describes a switch without a CPU port.
type Options struct {
	// Why is the reason for choosing this engine, for messages.
	Why string
	// CPUPort is the port of packet-in and packet-out, or 0 if there is none.
	CPUPort uint32
	// DropPort is the egress port that drops a packet. 0 means 511.
	DropPort uint32
	// Seed is the seed of the program's random numbers.
	Seed uint64
	// OnlyUDP, if not 0, is the only UDP port whose packets the program receives: IPv4 packets to
	// or from this port, untagged, unfragmented and without options. All other frames are for the
	// host. The host's stack also receives a copy of every frame for the program, so a switch that
	// shares interfaces must filter these copies out.
	OnlyUDP uint16
	// Priorities is the number of queue priorities of each port, as in [interp.NewQueues]. 0 means
	// 1.
	Priorities int
	// Events receives the steps of each packet's processing. If it is nil, there are no events.
	Events interp.Events
	// Log receives the switch's messages. If it is nil, the switch uses slog.Default().
	Log *slog.Logger
	// Ports has the options of the ports. New sets its field Log to Log.
	Ports ports.Options
}

// now reads the clock; tests replace it.
var now = clock.Now

// maxPacketOuts is the maximum number of packet-outs that wait for the packet thread.
const maxPacketOuts = 256

// Device implements [target.Device] and [target.Preparer].
type Device struct {
	opts  Options
	log   *slog.Logger
	start clock.Time
	ports *ports.Set
	outs  chan struct{} // contains a token for each packet-out that is waiting

	pipe     atomic.Pointer[interp.Pipeline]
	onPacket atomic.Pointer[func([]byte)]
	onDigest atomic.Pointer[func(target.Digest)]

	noPort atomic.Uint64 // number of frames for ports that do not exist
	depths queueDepths
	queues *interp.Queues
	leave  *time.Timer // wakes the packet thread when a waiting packet may leave its queue

	peersMu sync.Mutex              // guards home and peers
	home    *attach.Namespace       // the switch's own namespace, opened once a port needs it
	peers   map[uint32]*attach.Peer // other ends of veth pairs, by port

	// Fields that belong to the packet thread.
	leaveAt   time.Duration // when the timer leave fires; 0 if it is not set
	buf       interp.Buffer
	bugLogged bool
	closing   sync.Once
}

var (
	_ target.Device   = (*Device)(nil)
	_ target.Preparer = (*Device)(nil)
)

// New creates a switch without ports and without a program. It drops everything.
func New(opts Options) (*Device, error) {
	d := &Device{opts: opts, log: opts.Log, start: now(), outs: make(chan struct{}, maxPacketOuts),
		peers: map[uint32]*attach.Peer{}}
	if d.log == nil {
		d.log = slog.Default()
	}
	opts.Ports.Log = d.log
	set, err := ports.New(d.received, opts.Ports)
	if err != nil {
		return nil, err
	}
	d.ports = set
	d.queues = interp.NewQueues(max(opts.Priorities, 1))
	d.leave = time.AfterFunc(time.Hour, func() { _ = d.ports.Post(d.depart) })
	d.leave.Stop()
	return d, nil
}

// PacketOut implements target.Device. It returns before the frame has been processed. The caller
// must not change the frame afterwards.
func (d *Device) PacketOut(frame []byte) error {
	if d.opts.CPUPort == 0 {
		return fmt.Errorf("this switch has no CPU port (start it with --cpu-port N), "+
			"so there is no packet-out: %w", target.ErrUnsupported)
	}
	if d.pipe.Load() == nil {
		return target.ErrNoPipeline
	}
	d.outs <- struct{}{}
	err := d.ports.Post(func() {
		d.frame(d.opts.CPUPort, frame)
		<-d.outs
	})
	if err != nil {
		<-d.outs
		return fmt.Errorf("sending a packet: %w", err)
	}
	return nil
}

// OnPacketIn implements target.Device.
func (d *Device) OnPacketIn(f func(frame []byte)) { d.onPacket.Store(&f) }

// OnDigest implements target.Device.
func (d *Device) OnDigest(f func(target.Digest)) { d.onDigest.Store(&f) }

// Now implements target.Device.
func (d *Device) Now() time.Duration { return time.Duration(now() - d.start) }

// Close implements target.Device. It detaches all ports and restores their interfaces' settings.
func (d *Device) Close() error {
	err := errors.New("closed before")
	d.closing.Do(func() {
		d.depths.stop()
		d.releasePeers()
		err = d.ports.Close()
		d.leave.Stop()
	})
	return err
}

// frame runs the program on a frame. Only the packet thread may call it.
func (d *Device) frame(port uint32, frame []byte) {
	p := d.pipe.Load()
	if p == nil {
		return
	}
	if d.process(port, frame, func() { p.ProcessInto(&d.buf, d.Now(), port, frame) }) {
		d.emit()
	}
	d.planDeparture(p)
}

// depart processes the packets that may leave their queues now. Only the packet thread may call it.
func (d *Device) depart() {
	d.leaveAt = 0
	p := d.pipe.Load()
	if p == nil {
		return
	}
	if d.process(0, nil, func() { p.DepartInto(&d.buf, d.Now()) }) {
		d.emit()
	}
	d.planDeparture(p)
}

// planDeparture sets the timer so that depart is called when the next packet may leave its queue.
func (d *Device) planDeparture(p *interp.Pipeline) {
	at, waits := p.NextDeparture()
	if !waits || d.leaveAt != 0 && d.leaveAt <= at {
		return
	}
	d.leaveAt = max(at, 1)
	d.leave.Reset(max(0, at-d.Now()))
}

// emit sends the frames that the engine has output. Only the packet thread may call it.
func (d *Device) emit() {
	for i := range d.buf.Outs {
		out := &d.buf.Outs[i]
		if out.Port == d.opts.CPUPort && out.Port != 0 {
			if f := d.onPacket.Load(); f != nil {
				(*f)(append([]byte(nil), out.Frame...))
			}
			continue
		}
		if !d.ports.Send(out.Port, out.Frame) {
			d.noPort.Add(1)
		}
	}
}

// process runs the engine, for a frame or for waiting packets. It reports whether the engine
// returned normally. If a frame triggers a defect of the engine, only that frame is lost. process
// logs this once.
func (d *Device) process(port uint32, frame []byte, run func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if !d.bugLogged {
				d.bugLogged = true
				d.log.Error("the engine failed on a frame, which is dropped (logged once); "+
					"please report this", "port", port, "panic", r,
					"frame", hex.EncodeToString(frame[:min(len(frame), 256)]), "stack",
					string(debug.Stack()))
			}
		}
	}()
	run()
	return true
}
