package interp

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// registerArray is a register: its cells one after the other, each in as many lanes as it needs.
type registerArray struct {
	size, width, lanes int
	signed             bool
	cells              []uint64
}

// counterArray is a counter array.
type counterArray struct{ cells []target.CounterData }

// count counts a packet in the cell at i, if there is one.
func (a *counterArray) count(st *state, i uint64) {
	if i < uint64(len(a.cells)) {
		a.cells[i].Packets++
		a.cells[i].Bytes += uint64(st.inLen)
	}
}

// meterArray is a meter array.
type meterArray struct{ cells []meter }

// meter is one two-rate three-colour meter, as BMv2 works it: two token buckets, the peak one asked
// first; a packet that finds too few tokens in one gets its colour (red, then yellow) and leaves
// the other alone. A meter without configuration says green.
type meter struct {
	bytes  bool
	config *target.MeterConfig
	// The buckets of the peak and the committed rate.
	buckets [2]bucket
}

type bucket struct {
	rate, burst uint64 // tokens per second; tokens
	tokens      uint64
	made        uint64 // tokens made since the clock's zero, of which tokens has its share
}

func (m *meter) configure(c *target.MeterConfig) {
	m.config = nil
	if c == nil {
		return
	}
	copied := *c
	m.config = &copied
	m.buckets = [2]bucket{
		{rate: c.Peak.PerSecond, burst: c.Peak.Burst, tokens: c.Peak.Burst},
		{rate: c.Committed.PerSecond, burst: c.Committed.Burst, tokens: c.Committed.Burst},
	}
}

// color is 0 green, 1 yellow, 2 red.
func (m *meter) color(st *state) uint64 {
	if m.config == nil {
		return 0
	}
	need := uint64(1)
	if m.bytes {
		need = uint64(st.inLen)
	}
	for i := range m.buckets {
		if !m.buckets[i].take(need, st.now) {
			return uint64(2 - i)
		}
	}
	return 0
}

func (b *bucket) take(need uint64, now time.Duration) bool {
	hi, lo := bits.Mul64(uint64(max(now, 0)/time.Microsecond), b.rate)
	made := ^uint64(0)
	if hi < 1e6 {
		made, _ = bits.Div64(hi, lo, 1e6)
	}
	if made > b.made {
		b.tokens = min(b.burst, b.tokens+min(made-b.made, b.burst))
		b.made = made
	}
	if b.tokens < need {
		return false
	}
	b.tokens -= need
	return true
}

func (c *compiler) executeMeter(p *bmv2json.Primitive) doFn {
	a, idx, store := c.p.meters[p.Args[0].Meter.Index], c.index(p.Args[1]), c.store64(p.Args[2])
	return func(st *state) {
		if i := idx(st); i < uint64(len(a.cells)) {
			store(st, a.cells[i].color(st))
		}
	}
}

func checkIndex(i, size int) error {
	if i < 0 || i >= size {
		return fmt.Errorf("index %d of %d: %w", i, size, target.ErrOutOfRange)
	}
	return nil
}

// register finds a register array and checks that it has cells first to first+count-1.
func (p *Pipeline) register(name string, first, count int) (*registerArray, error) {
	r := p.prog.Register(name)
	if r == nil {
		return nil, fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	if first < 0 || count < 0 || count > r.Size-first {
		return nil, fmt.Errorf("register %q: cells %d to %d of %d: %w", name, first, first+count-1,
			r.Size, target.ErrOutOfRange)
	}
	return p.registers[r.Index], nil
}

// ReadRegister implements [target.Pipeline].
func (p *Pipeline) ReadRegister(name string, index int) ([]byte, error) {
	cells, err := p.ReadRegisters(name, index, 1)
	if err != nil {
		return nil, err
	}
	return cells[0], nil
}

// batch is how many cells are read or written while packets wait.
const batch = 1024

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
	to = slices.Grow(to, count*((r.width+7)/8))
	lanes := make([]uint64, 0, min(count, batch)*r.lanes)
	for i := 0; i < count; i += batch {
		n := min(batch, count-i)
		p.dp.Lock()
		lanes = append(lanes[:0], r.cells[(first+i)*r.lanes:(first+i+n)*r.lanes]...)
		p.dp.Unlock()
		for j := range n {
			to = appendLanes(to, lanes[j*r.lanes:(j+1)*r.lanes], r.width)
		}
	}
	return to, nil
}

// WriteRegister implements [target.Pipeline].
func (p *Pipeline) WriteRegister(name string, index int, value []byte) error {
	r, err := p.register(name, index, 1)
	if err != nil {
		return err
	}
	lanes, err := r.value(value)
	if err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	copy(r.cells[index*r.lanes:], lanes)
	return nil
}

func (r *registerArray) value(b []byte) ([]uint64, error) {
	if err := checkBytes(b, r.width); err != nil {
		return nil, err
	}
	lanes := make([]uint64, r.lanes)
	lanesFromBytes(lanes, b)
	return lanes, nil
}

// FillRegister implements [target.Pipeline].
func (p *Pipeline) FillRegister(name string, value []byte) error {
	r, err := p.register(name, 0, 0)
	if err != nil {
		return err
	}
	lanes, err := r.value(value)
	if err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	for i := 0; i < r.size; i += batch {
		p.dp.Lock()
		for j := i; j < min(i+batch, r.size); j++ {
			copy(r.cells[j*r.lanes:], lanes)
		}
		p.dp.Unlock()
	}
	return nil
}

func (p *Pipeline) counter(name string, index int) (*target.CounterData, error) {
	c := p.prog.Counter(name)
	if c == nil || c.Direct {
		return nil, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if err := checkIndex(index, c.Size); err != nil {
		return nil, fmt.Errorf("counter %q: %w", name, err)
	}
	return &p.counters[c.Index].cells[index], nil
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

func (p *Pipeline) meter(name string, index int) (*meter, error) {
	m := p.prog.Meter(name)
	if m == nil || m.Direct {
		return nil, fmt.Errorf("meter %q: %w", name, target.ErrNotFound)
	}
	if err := checkIndex(index, m.Size); err != nil {
		return nil, fmt.Errorf("meter %q: %w", name, err)
	}
	return &p.meters[m.Index].cells[index], nil
}

// checkMeter refuses a configuration that BMv2 refuses: the peak rate is not below the committed
// one (RFC 2698, section 2).
func checkMeter(c *target.MeterConfig) error {
	if c != nil && c.Peak.PerSecond < c.Committed.PerSecond {
		return fmt.Errorf("the peak rate %d is below the committed rate %d: %w", c.Peak.PerSecond,
			c.Committed.PerSecond, target.ErrInvalid)
	}
	return nil
}

func (m *meter) export() *target.MeterConfig {
	if m.config == nil {
		return nil
	}
	c := *m.config
	return &c
}

// ReadMeter implements [target.Pipeline].
func (p *Pipeline) ReadMeter(name string, index int) (*target.MeterConfig, error) {
	m, err := p.meter(name, index)
	if err != nil {
		return nil, err
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	return m.export(), nil
}

// WriteMeter implements [target.Pipeline].
func (p *Pipeline) WriteMeter(name string, index int, c *target.MeterConfig) error {
	m, err := p.meter(name, index)
	if err != nil {
		return err
	}
	if err := checkMeter(c); err != nil {
		return fmt.Errorf("meter %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	m.configure(c)
	return nil
}

// direct finds the entry of e's match in a table that has the wanted direct array.
func (p *Pipeline) direct(name string, e *target.TableEntry, has func(*table) bool,
	what string) (*entry, error) {
	t, err := p.table(name)
	if err != nil {
		return nil, err
	}
	if !has(t) {
		return nil, fmt.Errorf("table %q has no direct %s: %w", name, what, target.ErrInvalid)
	}
	have, err := t.lookupEntry(e)
	if err != nil {
		return nil, fmt.Errorf("direct %s of table %q: %w", what, name, err)
	}
	return have, nil
}

func hasCounters(t *table) bool { return t.counters }
func hasMeter(t *table) bool    { return t.meter != nil }

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
	return have.counter, nil
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
	have.counter = d
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
	return have.meter.export(), nil
}

// SetDirectMeter implements [target.Pipeline].
func (p *Pipeline) SetDirectMeter(name string, e *target.TableEntry, c *target.MeterConfig) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	have, err := p.direct(name, e, hasMeter, "meter")
	if err != nil {
		return err
	}
	if err := checkMeter(c); err != nil {
		return fmt.Errorf("direct meter of table %q: %w", name, err)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	have.meter.configure(c)
	return nil
}

// valueSet is a parser value set: members are compared under their own mask and that of the
// transition.
type valueSet struct {
	src     *bmv2json.ValueSet
	given   [][]target.FieldMatch
	members []setMember
}

type setMember struct{ value, mask []uint64 }

func (s *valueSet) contains(key, mask []uint64) bool {
next:
	for i := range s.members {
		m := &s.members[i]
		for j, k := range key {
			if (k^m.value[j])&m.mask[j]&mask[j] != 0 {
				continue next
			}
		}
		return true
	}
	return false
}

func (p *Pipeline) valueSet(name string) (*valueSet, error) {
	s := p.prog.ValueSet(name)
	if s == nil {
		return nil, fmt.Errorf("value set %q: %w", name, target.ErrNotFound)
	}
	return p.valueSets[s.Index], nil
}

// SetValueSet implements [target.Pipeline].
func (p *Pipeline) SetValueSet(name string, members [][]target.FieldMatch) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	s, err := p.valueSet(name)
	if err != nil {
		return err
	}
	if len(members) > s.src.MaxSize {
		return fmt.Errorf("value set %q: %d members where %d fit: %w", name, len(members),
			s.src.MaxSize, target.ErrFull)
	}
	var given [][]target.FieldMatch
	var compiled []setMember
	for i, fields := range members {
		m, err := s.member(fields)
		if err != nil {
			return fmt.Errorf("value set %q: member %d: %w", name, i, err)
		}
		compiled = append(compiled, m)
		var copied []target.FieldMatch
		for _, f := range fields {
			copied = append(copied, target.FieldMatch{Value: slices.Clone(f.Value),
				Mask: slices.Clone(f.Mask), PrefixLen: f.PrefixLen})
		}
		given = append(given, copied)
	}
	p.dp.Lock()
	defer p.dp.Unlock()
	s.given, s.members = given, compiled
	return nil
}

func (s *valueSet) member(fields []target.FieldMatch) (m setMember, err error) {
	if len(fields) != len(s.src.Widths) {
		return m, fmt.Errorf("%d fields instead of %d: %w", len(fields), len(s.src.Widths),
			target.ErrInvalid)
	}
	full := fullMask(s.src.Widths)
	for i, f := range fields {
		w := s.src.Widths[i]
		if err := checkBytes(f.Value, w); err != nil {
			return m, fmt.Errorf("field %d: %w", i, err)
		}
		value, mask := make([]uint64, lanesOf(w)),
			slices.Clone(full[len(m.value):len(m.value)+lanesOf(w)])
		lanesFromBytes(value, f.Value)
		if f.Mask != nil {
			if err := checkBytes(f.Mask, w); err != nil {
				return m, fmt.Errorf("field %d: mask: %w", i, err)
			}
			lanesFromBytes(mask, f.Mask)
		}
		m.value, m.mask = append(m.value, value...), append(m.mask, mask...)
	}
	return m, nil
}

// ValueSet implements [target.Pipeline].
func (p *Pipeline) ValueSet(name string) ([][]target.FieldMatch, error) {
	p.cp.Lock()
	defer p.cp.Unlock()
	s, err := p.valueSet(name)
	if err != nil {
		return nil, err
	}
	out := make([][]target.FieldMatch, len(s.given))
	for i, m := range s.given {
		out[i] = slices.Clone(m)
	}
	return out, nil
}
