package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/target"
)

func checkIndex(i, size int) error {
	if i < 0 || i >= size {
		return fmt.Errorf("index %d of %d: %w", i, size, target.ErrOutOfRange)
	}
	return nil
}

// register finds a register array and checks that it has cells first to first+count-1.
func (p *Pipeline) register(name string, first, count int) (*arrays.Register, error) {
	r := p.src.Register(name)
	if r == nil {
		return nil, fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	if first < 0 || count < 0 || count > r.Size-first {
		return nil, fmt.Errorf("register %q: cells %d to %d of %d: %w", name, first, first+count-1,
			r.Size, target.ErrOutOfRange)
	}
	return p.ref.Registers[r.Index], nil
}

// ReadRegister implements [target.Pipeline].
func (p *Pipeline) ReadRegister(name string, index int) ([]byte, error) {
	cells, err := p.ReadRegisters(name, index, 1)
	if err != nil {
		return nil, err
	}
	return cells[0], nil
}

// ReadRegisters implements [target.Pipeline].
func (p *Pipeline) ReadRegisters(name string, first, count int) ([][]byte, error) {
	cells, err := p.AppendRegisters(nil, name, first, count)
	if err != nil {
		return nil, err
	}
	return target.SplitCells(cells, count), nil
}

// AppendRegisters implements [target.Pipeline].
func (p *Pipeline) AppendRegisters(to []byte, name string, first, count int) ([]byte, error) {
	r, err := p.register(name, first, count)
	if err != nil {
		return nil, err
	}
	return r.AppendCells(to, first, count, &p.dp), nil
}

// WriteRegister implements [target.Pipeline].
func (p *Pipeline) WriteRegister(name string, index int, value []byte) error {
	r, err := p.register(name, index, 1)
	if err != nil {
		return err
	}
	lanes, err := r.Parse(value)
	if err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	r.Set(index, lanes)
	return nil
}

// FillRegister implements [target.Pipeline].
func (p *Pipeline) FillRegister(name string, value []byte) error {
	r, err := p.register(name, 0, 0)
	if err != nil {
		return err
	}
	lanes, err := r.Parse(value)
	if err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	r.Fill(lanes, &p.dp)
	return nil
}

func (p *Pipeline) counter(name string, index int) (*target.CounterData, error) {
	c := p.src.Counter(name)
	if c == nil || c.Direct {
		return nil, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if err := checkIndex(index, c.Size); err != nil {
		return nil, fmt.Errorf("counter %q: %w", name, err)
	}
	return p.ref.Counters[c.Index].Cell(index), nil
}

// ReadCounter implements [target.Pipeline].
func (p *Pipeline) ReadCounter(name string, index int) (target.CounterData, error) {
	c, err := p.counter(name, index)
	if err != nil {
		return target.CounterData{}, err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	return *c, nil
}

// WriteCounter implements [target.Pipeline].
func (p *Pipeline) WriteCounter(name string, index int, d target.CounterData) error {
	c, err := p.counter(name, index)
	if err != nil {
		return err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	*c = d
	return nil
}

func (p *Pipeline) meter(name string, index int) (*arrays.Meter, error) {
	m := p.src.Meter(name)
	if m == nil || m.Direct {
		return nil, fmt.Errorf("meter %q: %w", name, target.ErrNotFound)
	}
	if err := checkIndex(index, m.Size); err != nil {
		return nil, fmt.Errorf("meter %q: %w", name, err)
	}
	return p.ref.Meters[m.Index].Meter(index), nil
}

// ReadMeter implements [target.Pipeline].
func (p *Pipeline) ReadMeter(name string, index int) (*target.MeterConfig, error) {
	m, err := p.meter(name, index)
	if err != nil {
		return nil, err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	return m.Export(), nil
}

// WriteMeter implements [target.Pipeline].
func (p *Pipeline) WriteMeter(name string, index int, c *target.MeterConfig) error {
	m, err := p.meter(name, index)
	if err != nil {
		return err
	}
	if err := arrays.CheckConfig(c); err != nil {
		return fmt.Errorf("meter %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	m.Configure(c)
	return nil
}

// direct finds the entry with the same match as e in a table. has must report whether the table has
// a direct counter or meter.
func (p *Pipeline) direct(name string, e *target.TableEntry, has func(*bmv2json.Table) bool,
	what string) (*matchtables.Entry, error) {
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	if !has(p.src.Table(name)) {
		return nil, fmt.Errorf("table %q has no direct %s: %w", name, what, target.ErrInvalid)
	}
	have, err := t.LookupEntry(e)
	if err != nil {
		return nil, fmt.Errorf("direct %s of table %q: %w", what, name, err)
	}
	return have, nil
}

func hasCounters(t *bmv2json.Table) bool { return t.WithCounters }

func hasMeter(t *bmv2json.Table) bool { return t.DirectMeter != nil }

// DirectCounter implements [target.Pipeline].
func (p *Pipeline) DirectCounter(name string, e *target.TableEntry) (target.CounterData, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	have, err := p.direct(name, e, hasCounters, "counter")
	if err != nil {
		return target.CounterData{}, err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	return have.Counter, nil
}

// SetDirectCounter implements [target.Pipeline].
func (p *Pipeline) SetDirectCounter(name string, e *target.TableEntry, d target.CounterData) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	have, err := p.direct(name, e, hasCounters, "counter")
	if err != nil {
		return err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	have.Counter = d
	return nil
}

// DirectMeter implements [target.Pipeline].
func (p *Pipeline) DirectMeter(name string, e *target.TableEntry) (*target.MeterConfig, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	have, err := p.direct(name, e, hasMeter, "meter")
	if err != nil {
		return nil, err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	return have.Meter.Export(), nil
}

// SetDirectMeter implements [target.Pipeline].
func (p *Pipeline) SetDirectMeter(name string, e *target.TableEntry, c *target.MeterConfig) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	have, err := p.direct(name, e, hasMeter, "meter")
	if err != nil {
		return err
	}
	if err := arrays.CheckConfig(c); err != nil {
		return fmt.Errorf("direct meter of table %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	have.Meter.Configure(c)
	return nil
}
