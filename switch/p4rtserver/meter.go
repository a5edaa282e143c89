package p4rtserver

import (
	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// meterOf converts a MeterConfig to the engine's form. A nil MeterConfig stays nil, and means that
// every packet is green.
func meterOf(spec *p4cfg.MeterSpec, m *p4v1.MeterConfig) (*target.MeterConfig, error) {
	if m == nil {
		return nil, nil
	}
	if m.Cir < 0 || m.Cburst < 0 || m.Pir < 0 || m.Pburst < 0 || m.Eburst < 0 {
		return nil, translate.Invalidf("the rates and bursts of a meter are not negative")
	}
	switch spec.GetType() {
	case p4cfg.MeterSpec_TWO_RATE_THREE_COLOR:
		if m.Eburst != 0 {
			return nil, translate.Invalidf("eburst is for single-rate meters; this one has two rates")
		}
	case p4cfg.MeterSpec_SINGLE_RATE_TWO_COLOR:
		if m.Pir != m.Cir || m.Pburst != m.Cburst || m.Eburst != 0 {
			return nil, translate.Invalidf(
				"a single-rate two-colour meter has pir = cir, pburst = cburst and no eburst")
		}
	default:
		return nil, translate.Errorf(codes.Unimplemented,
			"meters of type %v are not implemented by this target", spec.GetType())
	}
	if m.Pir < m.Cir {
		return nil, translate.Invalidf("the peak rate %d is below the committed rate %d", m.Pir, m.Cir)
	}
	return &target.MeterConfig{
		Committed: target.MeterRate{PerSecond: uint64(m.Cir), Burst: uint64(m.Cburst)},
		Peak:      target.MeterRate{PerSecond: uint64(m.Pir), Burst: uint64(m.Pburst)},
	}, nil
}

func meterConfig(m *target.MeterConfig) *p4v1.MeterConfig {
	if m == nil {
		return nil
	}
	return &p4v1.MeterConfig{
		Cir: int64(m.Committed.PerSecond), Cburst: int64(m.Committed.Burst),
		Pir: int64(m.Peak.PerSecond), Pburst: int64(m.Peak.Burst),
	}
}

func noColourCounters() error {
	return translate.Errorf(codes.Unimplemented,
		"counters per colour (counter_data of a meter, meter_counter_data) are not implemented by this target")
}

func (c *config) writeMeter(typ p4v1.Update_Type, e *p4v1.MeterEntry) error {
	if err := onlyModify("meter", typ); err != nil {
		return err
	}
	a := c.Meters[e.MeterId]
	if a == nil {
		return translate.Invalidf("there is no meter %d", e.MeterId)
	}
	if e.CounterData != nil {
		return noColourCounters()
	}
	first, count, err := cells("meter "+a.Name, a.Size, e.Index)
	if err != nil {
		return err
	}
	m, err := meterOf(a.Spec, e.Config)
	if err != nil {
		return err
	}
	for i := first; i < first+count; i++ {
		if err := c.pipe.WriteMeter(a.Name, i, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) readMeters(q *p4v1.MeterEntry, emit func(*p4v1.Entity)) error {
	if q.CounterData != nil {
		return noColourCounters()
	}
	which, err := pick(c.Schema, "meter", q.MeterId, c.Meters, c.MeterOrder)
	if err != nil {
		return err
	}
	for _, a := range which {
		index := q.Index
		if q.MeterId == 0 {
			index = nil
		}
		first, count, err := cells("meter "+a.Name, a.Size, index)
		if err != nil {
			return err
		}
		for i := first; i < first+count; i++ {
			m, err := c.pipe.ReadMeter(a.Name, i)
			if err != nil {
				return err
			}
			emit(&p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{
				MeterId: a.ID, Index: &p4v1.Index{Index: int64(i)}, Config: meterConfig(m),
			}}})
		}
	}
	return nil
}

func (c *config) writeDirectMeter(typ p4v1.Update_Type, e *p4v1.DirectMeterEntry) error {
	if err := onlyModify("direct meter", typ); err != nil {
		return err
	}
	t, entry, err := c.directEntry(e.TableEntry, "meter")
	if err != nil {
		return err
	}
	if e.CounterData != nil {
		return noColourCounters()
	}
	m, err := meterOf(t.Meter.Spec, e.Config)
	if err != nil {
		return err
	}
	return c.pipe.SetDirectMeter(t.Name, entry, m)
}

func (c *config) readDirectMeters(q *p4v1.DirectMeterEntry, emit func(*p4v1.Entity)) error {
	if q.CounterData != nil {
		return noColourCounters()
	}
	return c.eachDirect(q.TableEntry, "meter", func(t *translate.Table, e *target.TableEntry) error {
		m, err := c.pipe.DirectMeter(t.Name, e)
		if err != nil {
			return err
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_DirectMeterEntry{
			DirectMeterEntry: &p4v1.DirectMeterEntry{
				TableEntry: t.KeyOf(e), Config: meterConfig(m),
			}}})
		return nil
	})
}
