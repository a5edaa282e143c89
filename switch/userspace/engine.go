package userspace

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// Engine implements target.Device.
func (d *Device) Engine() string {
	if d.opts.Why == "" {
		return "interp"
	}
	return "interp: " + d.opts.Why
}

// LevelTrace is the log level of each packet's steps in the program. It is below slog.LevelDebug.
const LevelTrace = slog.LevelDebug - 4

func (d *Device) engineOptions() interp.Options {
	out := interp.Options{
		DropPort: d.opts.DropPort,
		Seed:     d.opts.Seed,
		OnDigest: func(m target.Digest) {
			if f := d.onDigest.Load(); f != nil {
				(*f)(m)
			}
		},
		QueueDepth: d.depths.of,
		Queues:     d.queues,
		Events:     d.opts.Events,
		Log:        func(s string) { d.log.Info("program", "says", s) },
	}
	if d.log.Enabled(context.Background(), LevelTrace) {
		out.Trace = func(s string) { d.log.Log(context.Background(), LevelTrace, s) }
	}
	return out
}

// Verify implements target.Device.
func (d *Device) Verify(prog *bmv2json.Program) error {
	return interp.Verify(prog,
		d.engineOptions())
}

// Commit implements target.Device.
func (d *Device) Commit(prog *bmv2json.Program) error {
	p, err := d.Prepare(prog)
	if err != nil {
		return err
	}
	return d.Activate(p, nil)
}

// Prepare implements target.Preparer.
func (d *Device) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	p, err := interp.New(prog, d.engineOptions())
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Activate implements target.Preparer.
func (d *Device) Activate(p target.Pipeline, handOver func() error) error {
	next, ok := p.(*interp.Pipeline)
	if !ok {
		return fmt.Errorf("activating a pipeline of another engine (%T): %w", p, target.ErrInvalid)
	}
	var err error
	// Do runs a function on the packet thread between two packets.
	if doErr := d.ports.Do(func() {
		if handOver != nil {
			err = handOver()
		}
		if err == nil {
			if d.pipe.Swap(next) != nil && d.opts.Events != nil && d.opts.Events.Wanted() {
				d.opts.Events.Event(interp.Event{Kind: interp.EventConfigChange})
			}
		}
	}); doErr != nil {
		return doErr
	}
	if err == nil {
		d.watchQueues(next)
	}
	return err
}

// Pipeline implements target.Device.
func (d *Device) Pipeline() target.Pipeline {
	if p := d.pipe.Load(); p != nil {
		return p
	}
	return nil
}
