package bmthrift

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// maxCells is the largest number of register cells that one call may read or write.
const maxCells = 1 << 22

func counterFailure(err error) error {
	if err == nil {
		return nil
	}
	code := arrayFailure(err, idl.CounterCodeInvalidCounterName,
		idl.CounterCodeInvalidIndex, idl.CounterCodeError)
	return refusal(code, "%v", err)
}

func countOf(v idl.CounterValue) (target.CounterData, error) {
	if v.Packets < 0 || v.Bytes < 0 {
		return target.CounterData{}, fmt.Errorf("a count is not negative: %w", target.ErrInvalid)
	}
	return target.CounterData{Packets: uint64(v.Packets), Bytes: uint64(v.Bytes)}, nil
}

func counted64(d target.CounterData) idl.CounterValue {
	return idl.CounterValue{Bytes: int64(min(d.Bytes, math.MaxInt64)),
		Packets: int64(min(d.Packets, math.MaxInt64))}
}

// BmCounterRead implements the Thrift call of the same name.
func (h *handler) BmCounterRead(cxt int32, name string,
	index int32) (out idl.CounterValue, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		d, err := p.ReadCounter(name, int(index))
		out = counted64(d)
		return counterFailure(err)
	})
	return out, err
}

// BmCounterWrite implements the Thrift call of the same name.
func (h *handler) BmCounterWrite(cxt int32, name string, index int32,
	value idl.CounterValue) error {
	return h.write(cxt, func(p target.Pipeline) error {
		d, err := countOf(value)
		if err == nil {
			err = p.WriteCounter(name, int(index), d)
		}
		return counterFailure(err)
	})
}

// BmCounterResetAll implements the Thrift call of the same name.
func (h *handler) BmCounterResetAll(cxt int32, name string) error {
	return h.write(cxt, func(p target.Pipeline) error {
		c := h.prog.Counter(name)
		if c == nil || c.Direct {
			return counterFailure(fmt.Errorf("counter array %q: %w", name, target.ErrNotFound))
		}
		for i := range c.Size {
			if err := p.WriteCounter(name, i, target.CounterData{}); err != nil {
				return counterFailure(err)
			}
		}
		return nil
	})
}

// counting returns an entry, by its handle, of a table that has direct counters.
func (h *handler) counting(p target.Pipeline, table string,
	handle idl.Handle) (*target.TableEntry, error) {
	t, hs, i, err := h.entry(p, table, handle)
	if err != nil {
		return nil, err
	}
	if !t.WithCounters {
		return nil, refusal(idl.TableCodeCountersDisabled, "table %s has no direct counters", table)
	}
	return &hs.slots[i].entry, nil
}

// BmMtReadCounter implements the Thrift call of the same name.
func (h *handler) BmMtReadCounter(cxt int32, table string,
	handle idl.Handle) (out idl.CounterValue, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		e, err := h.counting(p, table, handle)
		if err != nil {
			return err
		}
		d, err := p.DirectCounter(table, e)
		out = counted64(d)
		return tableFailure(err, idl.TableCodeInvalidHandle, idl.TableCodeError)
	})
	return out, err
}

// BmMtWriteCounter implements the Thrift call of the same name.
func (h *handler) BmMtWriteCounter(cxt int32, table string,
	handle idl.Handle, value idl.CounterValue) error {
	return h.write(cxt, func(p target.Pipeline) error {
		e, err := h.counting(p, table, handle)
		if err != nil {
			return err
		}
		d, err := countOf(value)
		if err == nil {
			err = p.SetDirectCounter(table, e, d)
		}
		return tableFailure(err, idl.TableCodeInvalidHandle, idl.TableCodeError)
	})
}

// BmMtResetCounters implements the Thrift call of the same name.
func (h *handler) BmMtResetCounters(cxt int32, table string) error {
	return h.write(cxt, func(p target.Pipeline) error {
		t, _, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		if !t.WithCounters {
			return refusal(idl.TableCodeCountersDisabled, "table %s has no direct counters", table)
		}
		for i := range all {
			err := p.SetDirectCounter(table, &all[i], target.CounterData{})
			if err != nil {
				return tableFailure(err, idl.TableCodeError, idl.TableCodeError)
			}
		}
		return nil
	})
}

// Errors that a client can cause with the rates of a meter.
var (
	errRatesList = errors.New("a meter takes two rates, the committed and the peak one")
	errRate      = errors.New("a rate is a number of units in a microsecond, not negative")
	errBurst     = errors.New("a burst is not negative")
)

// ratesOf converts the rates that a client sent to a meter's configuration. Without rates, the
// meter marks every packet green.
func ratesOf(m *bmv2json.Meter, rates []idl.MeterRate) (*target.MeterConfig, error) {
	want := 2
	if m != nil && m.Rates > 0 {
		want = m.Rates
	}
	if len(rates) == 0 {
		return nil, nil
	}
	if len(rates) != want || len(rates) > 2 {
		return nil, errRatesList
	}
	var out [2]target.MeterRate
	for i, r := range rates {
		perSecond := math.Round(r.UnitsPerMicros * 1e6)
		switch {
		case !(perSecond >= 0 && perSecond < math.MaxInt64): // this condition also excludes NaN
			return nil, errRate
		case r.BurstSize < 0:
			return nil, errBurst
		}
		out[i] = target.MeterRate{PerSecond: uint64(perSecond), Burst: uint64(r.BurstSize)}
	}
	if len(rates) == 1 {
		out[1] = out[0]
	}
	return &target.MeterConfig{Committed: out[0], Peak: out[1]}, nil
}

func rated(c *target.MeterConfig) (out []idl.MeterRate) {
	if c == nil {
		return nil
	}
	for _, r := range []target.MeterRate{c.Committed, c.Peak} {
		out = append(out, idl.MeterRate{UnitsPerMicros: float64(r.PerSecond) / 1e6,
			BurstSize: int32(min(r.Burst, math.MaxInt32))})
	}
	return out
}

func meterFailure(err error) error {
	if err == nil {
		return nil
	}
	code := arrayFailure(err, idl.MeterCodeInvalidMeterName,
		idl.MeterCodeInvalidIndex, idl.MeterCodeError)
	switch {
	case errors.Is(err, errRatesList):
		code = idl.MeterCodeBadRatesList
	case errors.Is(err, errRate), errors.Is(err, target.ErrInvalid): // the peak is below the committed rate
		code = idl.MeterCodeInvalidInfoRateValue
	case errors.Is(err, errBurst):
		code = idl.MeterCodeInvalidBurstSizeValue
	}
	return refusal(code, "%v", err)
}

// setRates configures count meters of an array, starting at index first. If count is negative, it
// configures all of the array's meters.
func (h *handler) setRates(p target.Pipeline, name string, first, count int,
	rates []idl.MeterRate) error {
	m := h.prog.Meter(name)
	if m == nil || m.Direct {
		return meterFailure(fmt.Errorf("meter array %q: %w", name, target.ErrNotFound))
	}
	if count < 0 {
		count = m.Size
	}
	c, err := ratesOf(m, rates)
	for i := first; i < first+count && err == nil; i++ {
		err = p.WriteMeter(name, i, c)
	}
	return meterFailure(err)
}

// BmMeterArraySetRates implements the Thrift call of the same name.
func (h *handler) BmMeterArraySetRates(cxt int32, name string, rates []idl.MeterRate) error {
	return h.write(cxt, func(p target.Pipeline) error {
		return h.setRates(p, name, 0, -1, rates)
	})
}

// BmMeterSetRates implements the Thrift call of the same name.
func (h *handler) BmMeterSetRates(cxt int32, name string, index int32,
	rates []idl.MeterRate) error {
	return h.write(cxt, func(p target.Pipeline) error {
		return h.setRates(p, name, int(index), 1, rates)
	})
}

// BmMeterGetRates implements the Thrift call of the same name.
func (h *handler) BmMeterGetRates(cxt int32, name string,
	index int32) (out []idl.MeterRate, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		c, err := p.ReadMeter(name, int(index))
		out = rated(c)
		return meterFailure(err)
	})
	return out, err
}

// metered returns an entry, by its handle, of a table that has direct meters.
func (h *handler) metered(p target.Pipeline, table string,
	handle idl.Handle) (*bmv2json.Table, *target.TableEntry, error) {
	t, hs, i, err := h.entry(p, table, handle)
	if err != nil {
		return nil, nil, err
	}
	if t.DirectMeter == nil {
		return nil, nil, refusal(idl.TableCodeMetersDisabled,
			"table %s has no direct meters", table)
	}
	return t, &hs.slots[i].entry, nil
}

// BmMtSetMeterRates implements the Thrift call of the same name.
func (h *handler) BmMtSetMeterRates(cxt int32, table string,
	handle idl.Handle, rates []idl.MeterRate) error {
	return h.write(cxt, func(p target.Pipeline) error {
		t, e, err := h.metered(p, table, handle)
		if err != nil {
			return err
		}
		c, err := ratesOf(t.DirectMeter, rates)
		if err != nil {
			return refusal(idl.TableCodeInvalidMeterOperation, "%v", err)
		}
		return tableFailure(p.SetDirectMeter(table, e, c), idl.TableCodeInvalidHandle,
			idl.TableCodeInvalidMeterOperation)
	})
}

// BmMtGetMeterRates implements the Thrift call of the same name.
func (h *handler) BmMtGetMeterRates(cxt int32, table string,
	handle idl.Handle) (out []idl.MeterRate, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		_, e, err := h.metered(p, table, handle)
		if err != nil {
			return err
		}
		c, err := p.DirectMeter(table, e)
		out = rated(c)
		return tableFailure(err, idl.TableCodeInvalidHandle, idl.TableCodeError)
	})
	return out, err
}

func registerFailure(err error) error {
	if err == nil {
		return nil
	}
	code := arrayFailure(err, idl.RegisterCodeInvalidRegisterName,
		idl.RegisterCodeInvalidIndex, idl.RegisterCodeError)
	return refusal(code, "%v", err)
}

// register finds a register array of the loaded program by its name.
func (h *handler) register(name string) (*bmv2json.Register, error) {
	r := h.prog.Register(name)
	if r == nil {
		return nil, registerFailure(fmt.Errorf("register %q: %w", name, target.ErrNotFound))
	}
	return r, nil
}

// numberOf converts the bytes of a register cell to a number. It returns an error for a value that
// does not fit in 64 bits.
func numberOf(r *bmv2json.Register, b []byte) (int64, error) {
	for len(b) > 8 {
		if b[0] != 0 {
			return 0, registerFailure(fmt.Errorf(
				"a value of register %s has more than 64 bits, which Thrift has no number for; read it over P4Runtime",
				r.Name))
		}
		b = b[1:]
	}
	var wide [8]byte
	copy(wide[8-len(b):], b)
	v := binary.BigEndian.Uint64(wide[:])
	if r.Signed && r.Width < 64 {
		return int64(v<<(64-r.Width)) >> (64 - r.Width), nil
	}
	return int64(v), nil
}

// cellOf converts a number to a cell of the register. It keeps only the lowest bits, as BMv2 does.
func cellOf(r *bmv2json.Register, v int64) []byte {
	out := make([]byte, bytesOf(r.Width))
	sign := byte(0)
	if v < 0 {
		sign = 0xff
	}
	for i := range out {
		if shift := 8 * (len(out) - 1 - i); shift < 64 {
			out[i] = byte(v >> shift)
		} else {
			out[i] = sign
		}
	}
	if spare := len(out)*8 - r.Width; spare > 0 {
		out[0] &= 0xff >> spare
	}
	return out
}

// BmRegisterRead implements the Thrift call of the same name.
func (h *handler) BmRegisterRead(cxt int32, name string, index int32) (v int64, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		r, err := h.register(name)
		if err != nil {
			return err
		}
		b, err := p.ReadRegister(name, int(index))
		if err != nil {
			return registerFailure(err)
		}
		v, err = numberOf(r, b)
		return err
	})
	return v, err
}

// BmRegisterReadAll implements the Thrift call of the same name.
func (h *handler) BmRegisterReadAll(cxt int32, name string) (out []int64, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		r, err := h.register(name)
		if err != nil {
			return err
		}
		if err := few(r, r.Size); err != nil {
			return err
		}
		const chunk = 1 << 16
		for first := 0; first < r.Size; first += chunk {
			cells, err := p.ReadRegisters(name, first, min(chunk, r.Size-first))
			if err != nil {
				return registerFailure(err)
			}
			for _, b := range cells {
				v, err := numberOf(r, b)
				if err != nil {
					return err
				}
				out = append(out, v)
			}
		}
		return nil
	})
	return out, err
}

// few returns an error if a call would read or write more than maxCells cells.
func few(r *bmv2json.Register, cells int) error {
	if cells > maxCells {
		return registerFailure(fmt.Errorf(
			"%d cells of register %s are more than the %d that one call takes", cells, r.Name,
			maxCells))
	}
	return nil
}

// BmRegisterWrite implements the Thrift call of the same name.
func (h *handler) BmRegisterWrite(cxt int32, name string, index int32, value int64) error {
	return h.write(cxt, func(p target.Pipeline) error {
		r, err := h.register(name)
		if err != nil {
			return err
		}
		return registerFailure(p.WriteRegister(name, int(index), cellOf(r, value)))
	})
}

// BmRegisterWriteRange implements the Thrift call of the same name. The end of the range is
// exclusive.
func (h *handler) BmRegisterWriteRange(cxt int32, name string,
	first, end int32, value int64) error {
	return h.write(cxt, func(p target.Pipeline) error {
		r, err := h.register(name)
		if err != nil {
			return err
		}
		if first < 0 || end < first || int(end) > r.Size {
			return registerFailure(fmt.Errorf("cells %d to %d of register %s, which has %d: %w",
				first, end, name, r.Size, target.ErrOutOfRange))
		}
		if err := few(r, int(end-first)); err != nil {
			return err
		}
		cell := cellOf(r, value)
		for i := first; i < end; i++ {
			if err := p.WriteRegister(name, int(i), cell); err != nil {
				return registerFailure(err)
			}
		}
		return nil
	})
}

// BmRegisterReset implements the Thrift call of the same name.
func (h *handler) BmRegisterReset(cxt int32, name string) error {
	return h.write(cxt, func(p target.Pipeline) error {
		r, err := h.register(name)
		if err != nil {
			return err
		}
		return registerFailure(p.FillRegister(name, cellOf(r, 0)))
	})
}
