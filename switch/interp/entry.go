package interp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// call is an action with its parameters.
type call struct {
	params []uint64
	index  int // Action.Index
	src    *bmv2json.Action
}

// entry is an entry of a table. What a packet sees of it changes only under Pipeline.dp.
type entry struct {
	do     *call
	member *member // indirect tables: do is nil, and one of these is set
	group  *group

	counter target.CounterData
	meter   *meter
	age     target.Ageing // Hit is written by packets, under Pipeline.dp

	match    []target.FieldMatch
	priority int
	seq      uint64
	handle   int // in events
	isConst  bool

	value, mask []uint64 // by lane of the key; value is under mask
	plen        int
	same        *entry // the next best entry with this value and mask
}

// call is the action of an entry; nil if it refers to an empty group.
func (e *entry) call(st *state) *call {
	if e.do != nil {
		return e.do
	}
	return e.indirect(st)
}

// indirect finds the action of an entry that refers to a member or a group.
func (e *entry) indirect(st *state) *call {
	if e.member != nil {
		return e.member.do
	}
	return e.group.choose(st)
}

// bindCall checks an action call against a table's actions.
func bindCall(t *bmv2json.Table, a *target.ActionCall) (*call, error) {
	src, _ := t.Action(a.Action)
	if src == nil {
		return nil, fmt.Errorf("action %q is none of the table's: %w", a.Action, target.ErrInvalid)
	}
	return newCall(src, a.Params)
}

func newCall(src *bmv2json.Action, params [][]byte) (*call, error) {
	if len(params) != len(src.Params) {
		return nil, fmt.Errorf("action %q with %d parameters instead of %d: %w", src.Name,
			len(params), len(src.Params), target.ErrInvalid)
	}
	at, lanes := paramsOf(src)
	c := &call{src: src, index: src.Index, params: make([]uint64, lanes)}
	for i, at := range at {
		if err := checkBytes(params[i], at.width); err != nil {
			return nil, fmt.Errorf("action %q: parameter %q: %w", src.Name, src.Params[i].Name, err)
		}
		lanesFromBytes(c.params[at.lane:at.lane+lanesOf(at.width)], params[i])
	}
	return c, nil
}

func (c *call) export() target.ActionCall {
	out := target.ActionCall{Action: c.src.Name, Params: [][]byte{}}
	params, _ := paramsOf(c.src)
	for _, at := range params {
		out.Params = append(out.Params, bytesFromLanes(c.params[at.lane:at.lane+lanesOf(at.width)],
			at.width))
	}
	return out
}

func (e *entry) export() target.TableEntry {
	out := target.TableEntry{Priority: e.priority, IsConst: e.isConst}
	for _, m := range e.match {
		out.Match = append(out.Match, target.FieldMatch{Value: slices.Clone(m.Value),
			Mask: slices.Clone(m.Mask), PrefixLen: m.PrefixLen})
	}
	switch {
	case e.do != nil:
		a := e.do.export()
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

// retain counts the references to a member or group.
func (e *entry) retain(by int) {
	switch {
	case e.member != nil:
		e.member.refs += by
	case e.group != nil:
		e.group.refs += by
	}
}

// id is what tells an entry from the others of its table: the match, and the priority where there
// is one.
func (e *entry) id() string {
	b := make([]byte, 0, 16*len(e.value)+16)
	for i := range e.value {
		b = binary.BigEndian.AppendUint64(b, e.value[i])
		b = binary.BigEndian.AppendUint64(b, e.mask[i])
	}
	return string(binary.BigEndian.AppendUint64(b, uint64(int64(e.priority))))
}
