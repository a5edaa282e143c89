package runtime

import (
	"encoding/binary"
	"fmt"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

func (p *Pipeline) meter(name string, index int) (int, error) {
	m := p.Prog.Meter(name)
	if m == nil || m.Direct {
		return 0, none("meter", name)
	}
	if index < 0 || index >= m.Size {
		return 0, fmt.Errorf("meter %q: cell %d of %d: %w", name, index, m.Size,
			target.ErrOutOfRange)
	}
	return p.Meters[m.Index].Off + index*memory.MeterBytes, nil
}

// configureMeter writes a meter's cell in the state, atomically for packets.
func (p *Pipeline) configureMeter(at int, c *target.MeterConfig) error {
	data := make([]byte, compile.CellsHeader+memory.MeterBytes)
	if c != nil {
		switch {
		case c.Peak.PerSecond < c.Committed.PerSecond:
			return fmt.Errorf("the peak rate %d is below the committed rate %d: %w",
				c.Peak.PerSecond, c.Committed.PerSecond, target.ErrInvalid)
		case c.Peak.PerSecond >= memory.MostPerSecond:
			return fmt.Errorf("a rate of %d (below %d can be): %w", c.Peak.PerSecond,
				uint64(memory.MostPerSecond), target.ErrUnsupported)
		}
		cell := data[compile.CellsHeader:]
		binary.NativeEndian.PutUint64(cell[memory.MeterSet:], 1)
		for i, r := range []target.MeterRate{c.Peak, c.Committed} {
			bucket := cell[memory.MeterPeak+i*memory.BucketBytes:]
			binary.NativeEndian.PutUint64(bucket, r.PerSecond)
			binary.NativeEndian.PutUint64(bucket[8:], r.Burst)
			binary.NativeEndian.PutUint64(bucket[16:], r.Burst)
		}
	}
	return p.move(at, data, true)
}

func (p *Pipeline) meterConfig(at int) *target.MeterConfig {
	if p.State.Load(at+memory.MeterSet) == 0 {
		return nil
	}
	rate := func(i int) target.MeterRate {
		bucket := at + memory.MeterPeak + i*memory.BucketBytes
		return target.MeterRate{PerSecond: p.State.Load(bucket), Burst: p.State.Load(bucket + 8)}
	}
	return &target.MeterConfig{Peak: rate(0), Committed: rate(1)}
}

// ReadMeter implements [target.Pipeline].
func (p *Pipeline) ReadMeter(name string, index int) (*target.MeterConfig, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	at, err := p.meter(name, index)
	if err != nil {
		return nil, err
	}
	return p.meterConfig(at), nil
}

// WriteMeter implements [target.Pipeline].
func (p *Pipeline) WriteMeter(name string, index int, c *target.MeterConfig) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	at, err := p.meter(name, index)
	if err != nil {
		return err
	}
	if err := p.configureMeter(at, c); err != nil {
		return fmt.Errorf("meter %q: %w", name, err)
	}
	return nil
}

func (t *table) directMeter(e *target.TableEntry) (int, error) {
	if t.TablePlan.Meter < 0 {
		return 0, fmt.Errorf("it has no direct meter: %w", target.ErrInvalid)
	}
	have, _, err := t.find(e)
	if err != nil {
		return 0, err
	}
	return t.meterAt(have.word), nil
}

// meterAt returns the offset in the state at which an entry's meter is. word is the entry's word.
func (t *table) meterAt(word uint64) int {
	return t.TablePlan.Slots + int(word>>16)*t.SlotSize + t.TablePlan.Meter
}

// keepMeter copies the meter of a modified entry to the entry's new slot. If packets take tokens
// from the old meter meanwhile, these tokens are not deducted from the new meter.
func (t *table) keepMeter(old, word uint64) {
	for off := 0; off < memory.MeterBytes; off += 8 {
		t.p.State.Store(t.meterAt(word)+off, t.p.State.Load(t.meterAt(old)+off))
	}
}

// DirectMeter implements [target.Pipeline].
func (p *Pipeline) DirectMeter(name string, e *target.TableEntry) (c *target.MeterConfig,
	err error) {
	err = p.change("reading a meter of", name, func(t *table) error {
		at, err := t.directMeter(e)
		if err == nil {
			c = p.meterConfig(at)
		}
		return err
	})
	return c, err
}

// SetDirectMeter implements [target.Pipeline].
func (p *Pipeline) SetDirectMeter(name string, e *target.TableEntry, c *target.MeterConfig) error {
	return p.change("setting a meter of", name, func(t *table) error {
		at, err := t.directMeter(e)
		if err != nil {
			return err
		}
		return p.configureMeter(at, c)
	})
}
