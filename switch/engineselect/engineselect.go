package engineselect

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Engine is a device that can prepare a new pipeline while another pipeline is running.
type Engine interface {
	target.Device
	target.Preparer
}

// Device is a switch that runs on one of two engines.
type Device struct {
	log               *slog.Logger
	preferred, second Engine

	mu      sync.Mutex // held while the program or the ports change
	running Engine
	why     string // why the preferred engine refused the program; "" if the engine accepted it
	ports   map[uint32]target.Port
}

var _ Engine = (*Device)(nil)

// New creates a switch without ports or a program. Closing the switch closes both engines.
func New(preferred, second Engine, log *slog.Logger) *Device {
	if log == nil {
		log = slog.Default()
	}
	return &Device{log: log, preferred: preferred, second: second, running: preferred,
		ports: map[uint32]target.Port{}}
}

func (d *Device) current() Engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

// Engine implements [target.Device].
func (d *Device) Engine() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == d.second {
		return fmt.Sprintf("%s (%s)", d.running.Engine(), d.why)
	}
	return d.running.Engine()
}

// Verify implements [target.Device].
func (d *Device) Verify(prog *bmv2json.Program) error {
	err := d.preferred.Verify(prog)
	if errors.Is(err, target.ErrUnsupported) {
		return d.second.Verify(prog)
	}
	return err
}

// prepared is a prepared pipeline together with its engine.
type prepared struct {
	target.Pipeline
	engine Engine
	why    string
}

// Unwrap returns the engine's own pipeline.
func (p *prepared) Unwrap() target.Pipeline { return p.Pipeline }

// Prepare implements [target.Preparer].
func (d *Device) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	p, err := d.preferred.Prepare(prog)
	if err == nil {
		return &prepared{p, d.preferred, ""}, nil
	}
	if !errors.Is(err, target.ErrUnsupported) {
		return nil, err
	}
	d.log.Warn("the preferred engine does not run this program", "engine", d.preferred.Engine(),
		"err", err)
	q, also := d.second.Prepare(prog)
	if also != nil {
		return nil, also
	}
	return &prepared{q, d.second, err.Error()}, nil
}

// Commit implements [target.Device].
func (d *Device) Commit(prog *bmv2json.Program) error {
	p, err := d.Prepare(prog)
	if err != nil {
		return err
	}
	return d.Activate(p, nil)
}

// Activate implements [target.Preparer].
func (d *Device) Activate(p target.Pipeline, handOver func() error) error {
	next, ok := p.(*prepared)
	if !ok {
		return fmt.Errorf("activating a pipeline of another switch (%T): %w", p, target.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if next.engine == d.running {
		if err := d.running.Activate(next.Pipeline, handOver); err != nil {
			return err
		}
		d.why = next.why
		return nil
	}
	// Another engine takes over. The old engine sees no packets without ports, so its state cannot
	// change during the hand-over.
	if err := d.move(d.running, next.engine); err != nil {
		return err
	}
	if err := next.engine.Activate(next.Pipeline, handOver); err != nil {
		return errors.Join(err, d.move(next.engine, d.running))
	}
	d.running, d.why = next.engine, next.why
	return nil
}

// move moves the ports from one engine to the other. If one port cannot be moved, all ports stay
// where they were.
func (d *Device) move(from, to Engine) error {
	var moved []target.Port
	for _, p := range d.ports {
		err := from.RemovePort(p.Number)
		if err == nil {
			if err = to.AddPort(p); err == nil {
				moved = append(moved, p)
				continue
			}
			err = errors.Join(err, from.AddPort(p))
		}
		for _, q := range moved {
			err = errors.Join(err, to.RemovePort(q.Number), from.AddPort(q))
		}
		return fmt.Errorf("moving port %d from one engine to the other: %w", p.Number, err)
	}
	return nil
}

// Pipeline implements [target.Device].
func (d *Device) Pipeline() target.Pipeline { return d.current().Pipeline() }

// AddPort implements [target.Device].
func (d *Device) AddPort(p target.Port) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.running.AddPort(p); err != nil {
		return err
	}
	d.ports[p.Number] = p
	return nil
}

// RemovePort implements [target.Device].
func (d *Device) RemovePort(number uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.running.RemovePort(number); err != nil {
		return err
	}
	delete(d.ports, number)
	return nil
}

// Ports implements [target.Device].
func (d *Device) Ports() map[target.Port]target.PortCounters { return d.current().Ports() }

// setQueues calls do with the running engine. It returns an error if the engine has no queues.
func (d *Device) setQueues(do func(target.QueueSetter) error) error {
	running := d.current()
	q, ok := running.(target.QueueSetter)
	if !ok {
		return fmt.Errorf("the program runs in %s, which has no queues between ingress and egress; "+
			"start with --engine interp: %w", running.Engine(), target.ErrUnsupported)
	}
	return do(q)
}

// SetQueueDepth implements [target.QueueSetter].
func (d *Device) SetQueueDepth(port *uint32, priority *int, packets int) error {
	return d.setQueues(func(q target.QueueSetter) error {
		return q.SetQueueDepth(port, priority, packets)
	})
}

// SetQueueRate implements [target.QueueSetter].
func (d *Device) SetQueueRate(port *uint32, priority *int, perSecond uint64) error {
	return d.setQueues(func(q target.QueueSetter) error {
		return q.SetQueueRate(port, priority, perSecond)
	})
}

// PacketOut implements [target.Device].
func (d *Device) PacketOut(frame []byte) error { return d.current().PacketOut(frame) }

// OnPacketIn implements [target.Device].
func (d *Device) OnPacketIn(f func(frame []byte)) {
	d.preferred.OnPacketIn(f)
	d.second.OnPacketIn(f)
}

// OnDigest implements [target.Device].
func (d *Device) OnDigest(f func(target.Digest)) {
	d.preferred.OnDigest(f)
	d.second.OnDigest(f)
}

// Now implements [target.Device].
func (d *Device) Now() time.Duration { return d.current().Now() }

// Close implements [target.Device].
func (d *Device) Close() error { return errors.Join(d.preferred.Close(), d.second.Close()) }
