package matchtables

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// Call is an action with its parameters.
type Call struct {
	Parameters []uint64
	Index      int // index of the action (Action.Index)
	Source     *bmv2json.Action
}

// Entry is an entry of a table. The part that packets read changes only under Table.packets.
type Entry struct {
	Own    *Call // nil in an indirect table, whose entries refer to a member or a group
	member *member
	group  *group

	Counter target.CounterData
	Meter   *arrays.Meter
	age     target.Ageing // packets update age.Hit

	match    []target.FieldMatch
	priority int
	seq      uint64
	Handle   int // number that identifies the entry in events
	isConst  bool

	value, mask []uint64 // indexed by lane of the key; bits of value outside mask are 0
	plen        int
	same        *Entry // the next entry in priority with the same value and mask
}

// Call returns the action that an entry selects for a packet. It returns nil if the entry refers to
// an empty group.
func (e *Entry) Call(st *packet.State) *Call {
	if e.Own != nil {
		return e.Own
	}
	return e.indirect(st)
}

// indirect returns the action of an entry that refers to a member or a group.
func (e *Entry) indirect(st *packet.State) *Call {
	if e.member != nil {
		return e.member.do
	}
	return e.group.choose(st)
}

// bindCall checks an action call against a table's actions.
func bindCall(t *bmv2json.Table, a *target.ActionCall) (*Call, error) {
	src, _ := t.Action(a.Action)
	if src == nil {
		return nil, fmt.Errorf("action %q is none of the table's: %w", a.Action, target.ErrInvalid)
	}
	return newCall(src, a.Params)
}

// newCall checks the parameters of an action and converts them to lanes.
func newCall(src *bmv2json.Action, params [][]byte) (*Call, error) {
	if len(params) != len(src.Params) {
		return nil, fmt.Errorf("action %q with %d parameters instead of %d: %w", src.Name,
			len(params), len(src.Params), target.ErrInvalid)
	}
	places, lanes := packet.ParametersOf(src)
	c := &Call{Source: src, Index: src.Index, Parameters: make([]uint64, lanes)}
	for i, at := range places {
		if err := wideint.CheckBytes(params[i], at.Width); err != nil {
			return nil, fmt.Errorf("action %q: parameter %q: %w", src.Name, src.Params[i].Name, err)
		}
		wideint.SetBytes(c.Parameters[at.Lane:at.Lane+wideint.Lanes(at.Width)], params[i])
	}
	return c, nil
}

// Export converts the call to the control plane's type.
func (c *Call) Export() target.ActionCall {
	out := target.ActionCall{Action: c.Source.Name, Params: [][]byte{}}
	params, _ := packet.ParametersOf(c.Source)
	for _, at := range params {
		value := c.Parameters[at.Lane : at.Lane+wideint.Lanes(at.Width)]
		out.Params = append(out.Params, wideint.Bytes(value, at.Width))
	}
	return out
}

// export converts the entry to the control plane's type.
func (e *Entry) export() target.TableEntry {
	out := target.TableEntry{Priority: e.priority, IsConst: e.isConst}
	for _, m := range e.match {
		out.Match = append(out.Match, target.FieldMatch{Value: slices.Clone(m.Value),
			Mask: slices.Clone(m.Mask), PrefixLen: m.PrefixLen})
	}
	switch {
	case e.Own != nil:
		a := e.Own.Export()
		out.Action = &a
	case e.member != nil:
		id := e.member.id
		out.Member = &id
	case e.group != nil:
		id := e.group.id
		out.Group = &id
	}
	return out
}

// retain adds to the reference count of the entry's member or group.
func (e *Entry) retain(by int) {
	switch {
	case e.member != nil:
		e.member.refs += by
	case e.group != nil:
		e.group.refs += by
	}
}

// id returns a string that identifies an entry within its table. It contains the match, and the
// priority if there is one.
func (e *Entry) id() string {
	b := make([]byte, 0, 16*len(e.value)+16)
	for i := range e.value {
		b = binary.BigEndian.AppendUint64(b, e.value[i])
		b = binary.BigEndian.AppendUint64(b, e.mask[i])
	}
	return string(binary.BigEndian.AppendUint64(b, uint64(int64(e.priority))))
}

type member struct {
	id   uint32
	do   *Call
	refs int // number of entries and groups that refer to the member
}

// group is a group of members. Its buckets are in the order of the members' ids, and each member
// has as many buckets as its weight. As in BMv2, the hash selects the n-th bucket, so the choice
// does not depend on the order of the control plane's writes.
type group struct {
	id      uint32
	calc    *calculation.Calculation
	members []target.WeightedMember
	buckets []*member
	refs    int
}

func (g *group) choose(st *packet.State) *Call {
	if len(g.buckets) == 0 {
		return nil
	}
	return g.buckets[g.calc.Value(st)%uint64(len(g.buckets))].do
}
