package placementcontroller

import (
	"math"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// meter computes rates from the switches' counters of placed keys. The same readings always give
// the same rates.
type meter struct {
	smooth time.Duration // time constant of the moving average
	slots  map[meterAt]*reading
}

type meterAt struct {
	sw string
	id uint32
}

type reading struct {
	at            time.Time
	reads, writes uint64
	known         bool
	readRate      float64
	writeRate     float64
}

func newMeter(smooth time.Duration) *meter {
	return &meter{smooth: smooth, slots: map[meterAt]*reading{}}
}

// take adds a reading of a switch's counters.
func (m *meter) take(now time.Time, sw string, slots []admin.SlotCounters) {
	for _, s := range slots {
		at := meterAt{sw, s.KeyID}
		last := m.slots[at]
		if last == nil {
			m.slots[at] = &reading{at: now, reads: s.Reads, writes: s.Writes}
			continue
		}
		dt := now.Sub(last.at).Seconds()
		if dt <= 0 {
			continue
		}
		if s.Reads < last.reads || s.Writes < last.writes { // the switch was restarted
			last.reads, last.writes = 0, 0
		}
		reads, writes := float64(s.Reads-last.reads)/dt, float64(s.Writes-last.writes)/dt
		if last.known {
			part := 1 - math.Exp(-dt/m.smooth.Seconds())
			reads, writes = last.readRate+part*(reads-last.readRate), last.writeRate+part*(writes-last.writeRate)
		}
		*last = reading{at: now, reads: s.Reads, writes: s.Writes, known: true, readRate: reads,
			writeRate: writes}
	}
}

// versionsPerWrite is how many versions a slot uses for one write of its key: one for the guard,
// and one for the published value.
const versionsPerWrite = 2

// heat returns the rates of a key, from the counts of the members of its chain. The rates are known
// only if all members were read within `lately`, because the key would look colder than it is if a
// member were missing.
func (m *meter) heat(now time.Time, id uint32, members []string, lately time.Duration) (policy.Heat, bool) {
	var h policy.Heat
	for _, sw := range members {
		r := m.slots[meterAt{sw, id}]
		if r == nil || !r.known || now.Sub(r.at) > lately {
			return policy.Heat{}, false
		}
		h.Reads += r.readRate
		h.Writes = max(h.Writes, r.writeRate/versionsPerWrite)
	}
	h.Reads = max(0, h.Reads-h.Writes) // a gateway reads a slot before it guards it
	return h, len(members) > 0
}

// forget drops readings that are older than `older`.
func (m *meter) forget(now time.Time, older time.Duration) {
	for at, r := range m.slots {
		if now.Sub(r.at) > older {
			delete(m.slots, at)
		}
	}
}
