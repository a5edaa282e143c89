package p4rt

import (
	"errors"
	"fmt"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// An attacker may control a switch, and the controller reads the switch's answers into memory. A
// few bytes of an answer become many bytes in memory. For example, an entity of two bytes becomes
// an object of a hundred bytes. So each request has an allowance, which follows from the program
// and the request, and the controller abandons an answer that exceeds it.

// ErrAnswerTooLarge says that a switch's answer is larger than the request allows.
var ErrAnswerTooLarge = errors.New("the switch answers more than the question can have")

const (
	// largestMessage bounds the size, in bytes, of messages that do not answer a read: packets,
	// errors, and answers to requests that change something.
	largestMessage = 1 << 20
	// largestPipeline bounds the size, in bytes, of the answer to a request for the program.
	largestPipeline = 4 << 20
	// largestHeader bounds the size, in bytes, of an answer's header and of its trailer. The
	// trailer has the errors of the single updates of a batch.
	largestHeader = 1 << 20
	// largestGroup bounds the size of one multicast group in bytes. largestGroups bounds the size
	// of all groups together.
	largestGroup, largestGroups = 64 << 10, 4 << 20
	// mostGroups is the maximum number of groups. v1model has 16 bits for their ids.
	mostGroups = 1 << 16
	// mostUnknown bounds the number, and largestUnknown the size in bytes, of entities that the
	// program does not describe.
	mostUnknown, largestUnknown = 1 << 16, 256
)

// allowance limits what the remaining part of an answer may contain.
type allowance struct {
	entities int // number of entities; a message without entities counts as one
	bytes    int
	largest  int // size of the largest entity, in bytes
}

// allow adds to the allowance a number of entities, each of at most largest bytes.
func (a *allowance) allow(entities, largest int) {
	a.entities += entities
	a.bytes += entities * largest
	a.largest = max(a.largest, largest)
}

// spend subtracts entities and bytes from the allowance.
func (a *allowance) spend(entities, bytes int) error {
	a.entities -= entities
	a.bytes -= bytes
	if a.entities < 0 || a.bytes < 0 {
		return ErrAnswerTooLarge
	}
	return nil
}

// allowance returns the limits of the answer to a request.
func (i *Info) allowance(what []*v1.Entity) *allowance {
	a := &allowance{}
	for _, e := range what {
		switch e := e.GetEntity().(type) {
		case *v1.Entity_TableEntry:
			one := len(e.TableEntry.GetMatch()) > 0
			allowEach(a, i.tables, e.TableEntry.GetTableId(), func(t *configv1.Table) (int, int) {
				return cells(t.Size+1, one), i.entryBytes(t) // one more entry is allowed, for the default entry
			})
		case *v1.Entity_DirectCounterEntry:
			id := e.DirectCounterEntry.GetTableEntry().GetTableId()
			allowEach(a, i.tables, id, func(t *configv1.Table) (int, int) {
				return cells(t.Size+1, false), i.entryBytes(t)
			})
		case *v1.Entity_DirectMeterEntry:
			id := e.DirectMeterEntry.GetTableEntry().GetTableId()
			allowEach(a, i.tables, id, func(t *configv1.Table) (int, int) {
				return cells(t.Size+1, false), i.entryBytes(t)
			})
		case *v1.Entity_CounterEntry:
			one := e.CounterEntry.GetIndex() != nil
			allowEach(a, i.counters, e.CounterEntry.GetCounterId(), func(c *configv1.Counter) (int, int) {
				return cells(c.Size, one), 64
			})
		case *v1.Entity_MeterEntry:
			one := e.MeterEntry.GetIndex() != nil
			allowEach(a, i.meters, e.MeterEntry.GetMeterId(), func(m *configv1.Meter) (int, int) {
				return cells(m.Size, one), 256
			})
		case *v1.Entity_RegisterEntry:
			one := e.RegisterEntry.GetIndex() != nil
			allowEach(a, i.registers, e.RegisterEntry.GetRegisterId(), func(r *configv1.Register) (int, int) {
				size := 4096 // size of a cell that is not a plain bit string, as an estimate
				if w := r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth(); w > 0 {
					size = int(w+7)/8 + 64
				}
				return cells(int64(r.Size), one), size
			})
		case *v1.Entity_PacketReplicationEngineEntry:
			a.entities += mostGroups
			a.bytes += largestGroups
			a.largest = max(a.largest, largestGroup)
		default:
			a.allow(mostUnknown, largestUnknown)
		}
	}
	a.entities = 2*a.entities + 16 // each message may contain only one entity, and the last message none
	a.bytes += 4 << 10
	return a
}

// allowEach adds the allowance for one object of the program, or for all objects of its kind if the
// id is 0.
func allowEach[T any](a *allowance, x index[T], id uint32, size func(T) (entities, largest int)) {
	if e, ok := x.byID[id]; ok {
		a.allow(size(e))
		return
	}
	if id != 0 {
		a.allow(mostUnknown, largestUnknown)
		return
	}
	for _, e := range x.byID {
		a.allow(size(e))
	}
}

// cells returns the number of cells to expect: 1 if one is set, otherwise the array's size. If the
// program leaves the size open, cells assumes a maximum.
func cells(size int64, one bool) int {
	switch {
	case one:
		return 1
	case size <= 1:
		return mostUnknown
	}
	return int(min(size, 1<<24))
}

// entryBytes returns the maximum size of a table entry when encoded: its match fields, its action
// with the parameters, and additional data that a switch may return.
func (i *Info) entryBytes(t *configv1.Table) int {
	n, params := 192, 0
	for _, f := range t.MatchFields {
		n += 2*valueBytes(f.GetBitwidth()) + 24
	}
	for _, r := range t.ActionRefs {
		p := 0
		for _, x := range i.actions.byID[r.Id].GetParams() {
			p += valueBytes(x.GetBitwidth()) + 16
		}
		params = max(params, p)
	}
	return n + params
}

// valueBytes returns the size in bytes of a value with a width in bits. Strings have the width 0.
func valueBytes(width int32) int {
	if width <= 0 {
		return 128
	}
	return int(width+7) / 8
}

// each calls f with each entity of an encoded ReadResponse. It decodes an entity only if the
// allowance permits it.
func (a *allowance) each(info *Info, response []byte, f func(*v1.Entity) error) error {
	if err := a.spend(1, len(response)); err != nil {
		return err
	}
	for len(response) > 0 {
		b, rest, err := field(response, fieldEntities)
		if err != nil {
			return err
		}
		here := response[:len(response)-len(rest)]
		response = rest
		if n, _, _ := protowire.ConsumeTag(here); n != fieldEntities {
			continue // skip a field that a later version of P4Runtime has added
		}
		if err := a.spend(1, 0); err != nil || len(b) > a.largest {
			return ErrAnswerTooLarge
		}
		e := new(v1.Entity)
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, e); err != nil {
			return err
		}
		if te := e.GetTableEntry(); te != nil {
			if err := info.checkShape(te); err != nil {
				return err
			}
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// checkShape rejects an entry that has more parts than an entry of its table can have. Empty parts
// take few bytes, but still become objects.
func (i *Info) checkShape(te *v1.TableEntry) error {
	t, ok := i.tables.byID[te.GetTableId()]
	if !ok {
		return fmt.Errorf("the switch tells of a table %d, which the program has not", te.GetTableId())
	}
	params := te.GetAction().GetAction().GetParams()
	most := len(i.actions.byID[te.GetAction().GetAction().GetActionId()].GetParams())
	if len(te.Match) > len(t.MatchFields) || len(params) > most ||
		te.GetAction().GetActionProfileActionSet() != nil {
		return ErrAnswerTooLarge
	}
	return nil
}
