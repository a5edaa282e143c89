package ebpf

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/target"
)

// Meters: two token buckets each, as BMv2 works them. The peak one is asked first; a packet that finds too few tokens in one gets its colour (red, then yellow) and leaves
// the other alone. A meter without configuration says green. Meters have a lock of their own: what a packet takes from a bucket no other one gets.
//
// A cell:
//
//	0    8 bytes  1 if it is configured
//	8   32 bytes  the peak bucket: tokens a second, burst, tokens, and how many tokens were made since the clock's zero, of which it has its share
//	40  32 bytes  the committed bucket
const (
	meterSet    = 0
	meterPeak   = 8
	bucketBytes = 32
	meterBytes  = meterPeak + 2*bucketBytes

	// mostPerSecond bounds a rate, so that a million times it is a number of 64 bits.
	mostPerSecond = 1 << 43
)

// planMeters makes room for the meter arrays; direct meters are in their entries' slots.
func (p *plan) planMeters() {
	for _, m := range p.prog.Meters {
		a := arrayPlan{cell: meterBytes, size: m.Size}
		if !m.Direct {
			a.off = p.allocate(a.cell * a.size)
		}
		p.meters = append(p.meters, a)
	}
}

// meterFunction is the function that asks a meter: R1 is how many tokens the packet needs, R2 where the cell is. It returns the colour in R0.
func (t *translator) meterFunction() string {
	const name = "meter"
	for _, f := range t.functions {
		if f.Name == name {
			return name
		}
	}
	t.functions = append(t.functions, t.function(name, func() {
		const need, cell, micros, made = asm.R6, asm.R7, asm.R8, asm.R9
		green, busy := "meter.green", "meter.busy"
		t.Emit(asm.Mov.Reg(need, asm.R1), asm.Mov.Reg(cell, asm.R2))
		t.acquire(t.meterLock, busy)
		t.Load(asm.R1, cell, meterSet, 8) // it may have been taken away meanwhile
		t.Emit(asm.JEq.Imm(asm.R1, 0, green))
		t.Call(asm.FnKtimeGetBootNs)
		t.LoadConstant(asm.R1, uint64(t.started))
		t.Emit(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000), asm.Mov.Reg(micros, asm.R0))
		for i := range 2 {
			at := meterPeak + i*bucketBytes
			same, fits, enough, less := t.NewLabel("same"), t.NewLabel("fits"), t.NewLabel("enough"), t.NewLabel("less")
			// Made since the clock's zero: the whole seconds and the rest, so that nothing overflows.
			t.Load(asm.R3, cell, at, 8)
			t.Emit(asm.Mov.Reg(made, micros), asm.Div.Imm(made, 1_000_000), asm.Mul.Reg(made, asm.R3))
			t.Emit(asm.Mov.Reg(asm.R1, micros), asm.Mod.Imm(asm.R1, 1_000_000), asm.Mul.Reg(asm.R1, asm.R3), asm.Div.Imm(asm.R1, 1_000_000), asm.Add.Reg(made, asm.R1))
			t.Load(asm.R4, cell, at+24, 8)
			t.Load(asm.R5, cell, at+16, 8)
			t.Emit(asm.JLE.Reg(made, asm.R4, same))
			t.Load(asm.R2, cell, at+8, 8)
			t.Emit(asm.Mov.Reg(asm.R1, made), asm.Sub.Reg(asm.R1, asm.R4), asm.JLE.Reg(asm.R1, asm.R2, less), asm.Mov.Reg(asm.R1, asm.R2))
			t.Bind(less)
			t.Emit(asm.Add.Reg(asm.R5, asm.R1), asm.JLE.Reg(asm.R5, asm.R2, fits), asm.Mov.Reg(asm.R5, asm.R2))
			t.Bind(fits)
			t.Store(cell, at+16, asm.R5, 8)
			t.Store(cell, at+24, made, 8)
			t.Bind(same)
			t.Emit(asm.JGE.Reg(asm.R5, need, enough))
			t.release(t.meterLock)
			t.Emit(asm.Mov.Imm(asm.R0, int32(2-i)), asm.Return())
			t.Bind(enough)
			t.Emit(asm.Sub.Reg(asm.R5, need))
			t.Store(cell, at+16, asm.R5, 8)
		}
		t.Bind(green)
		t.release(t.meterLock)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind(busy) // nobody holds it for so long; a meter that cannot be asked lets nothing through
		t.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return())
	}))
	return name
}

// askMeter leaves the colour that the meter whose cell is at R2 gives the packet in R0.
func (t *translator) askMeter(m *bmv2json.Meter) {
	asked := t.NewLabel("asked")
	t.Load(asm.R0, asm.R2, meterSet, 8)
	t.Emit(asm.JEq.Imm(asm.R0, 0, asked)) // without a configuration: green, which is 0
	if m.Bytes {
		t.Load(asm.R1, code.PHV, phvInLen, 4)
	} else {
		t.Emit(asm.Mov.Imm(asm.R1, 1))
	}
	t.CallFunction(t.meterFunction())
	t.Bind(asked)
}

// executeMeter emits execute_meter(meter, index, dst). An index beyond the array leaves dst as it is.
func (t *translator) executeMeter(p *bmv2json.Primitive) {
	m := p.Args[0].Meter
	end := t.NewLabel("metered")
	if m.Size == 0 {
		return
	}
	t.cell(t.meters[m.Index], t.Index(p.Args[1]), end)
	t.askMeter(m)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	t.storeNumber(p.Args[2])
	t.Bind(end)
}

// directMeter asks the meter of the entry whose slot Entry points to, and stores the colour.
func (t *translator) directMeter(tp *tablePlan) {
	t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Add.Imm(asm.R2, int32(tp.meter)))
	t.askMeter(tp.src.DirectMeter)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	t.storeNumber(&bmv2json.Expr{Op: bmv2json.OpField, Field: tp.src.DirectMeter.Result, Path: tp.src.DirectMeter.Path})
}

// ---- the control plane ----

func (p *pipeline) meter(name string, index int) (int, error) {
	m := p.prog.Meter(name)
	if m == nil || m.Direct {
		return 0, none("meter", name)
	}
	if index < 0 || index >= m.Size {
		return 0, fmt.Errorf("meter %q: cell %d of %d: %w", name, index, m.Size, target.ErrOutOfRange)
	}
	return p.meters[m.Index].off + index*meterBytes, nil
}

// configureMeter writes a cell, whole to packets.
func (p *pipeline) configureMeter(at int, c *target.MeterConfig) error {
	data := make([]byte, cellsHeader+meterBytes)
	if c != nil {
		switch {
		case c.Peak.PerSecond < c.Committed.PerSecond:
			return fmt.Errorf("the peak rate %d is below the committed rate %d: %w", c.Peak.PerSecond, c.Committed.PerSecond, target.ErrInvalid)
		case c.Peak.PerSecond >= mostPerSecond:
			return fmt.Errorf("a rate of %d (below %d can be): %w", c.Peak.PerSecond, uint64(mostPerSecond), target.ErrUnsupported)
		}
		cell := data[cellsHeader:]
		binary.NativeEndian.PutUint64(cell[meterSet:], 1)
		for i, r := range []target.MeterRate{c.Peak, c.Committed} {
			bucket := cell[meterPeak+i*bucketBytes:]
			binary.NativeEndian.PutUint64(bucket, r.PerSecond)
			binary.NativeEndian.PutUint64(bucket[8:], r.Burst)
			binary.NativeEndian.PutUint64(bucket[16:], r.Burst)
		}
	}
	return p.move(at, data, true)
}

func (p *pipeline) meterConfig(at int) *target.MeterConfig {
	if p.state.load(at+meterSet) == 0 {
		return nil
	}
	rate := func(i int) target.MeterRate {
		bucket := at + meterPeak + i*bucketBytes
		return target.MeterRate{PerSecond: p.state.load(bucket), Burst: p.state.load(bucket + 8)}
	}
	return &target.MeterConfig{Peak: rate(0), Committed: rate(1)}
}

// ReadMeter implements [target.Pipeline].
func (p *pipeline) ReadMeter(name string, index int) (*target.MeterConfig, error) {
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
func (p *pipeline) WriteMeter(name string, index int, c *target.MeterConfig) error {
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
	if t.tablePlan.meter < 0 {
		return 0, fmt.Errorf("it has no direct meter: %w", target.ErrInvalid)
	}
	have, _, err := t.find(e)
	if err != nil {
		return 0, err
	}
	return t.meterAt(have.word), nil
}

// meterAt is where the meter of an entry is, by its word.
func (t *table) meterAt(word uint64) int {
	return t.tablePlan.slots + int(word>>16)*t.slotSize + t.tablePlan.meter
}

// keepMeter carries the meter of an entry that is modified over to its new slot. What packets take from the old one meanwhile is not taken from the new.
func (t *table) keepMeter(old, word uint64) {
	for off := 0; off < meterBytes; off += 8 {
		t.p.state.store(t.meterAt(word)+off, t.p.state.load(t.meterAt(old)+off))
	}
}

// DirectMeter implements [target.Pipeline].
func (p *pipeline) DirectMeter(name string, e *target.TableEntry) (c *target.MeterConfig, err error) {
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
func (p *pipeline) SetDirectMeter(name string, e *target.TableEntry, c *target.MeterConfig) error {
	return p.change("setting a meter of", name, func(t *table) error {
		at, err := t.directMeter(e)
		if err != nil {
			return err
		}
		return p.configureMeter(at, c)
	})
}
