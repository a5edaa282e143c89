package interp

import (
	"container/heap"

	"github.com/cespare/xxhash/v2"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// EventKind is a kind of step of a packet's way, with the number that BMv2's event logger gives it.
type EventKind int32

// The kinds of step. What Event.ID says is an id of the program's JSON, where nothing else is said.
const (
	EventPacketIn       EventKind = iota // ID: the port
	EventPacketOut                       // ID: the port
	EventParserStart                     // ID: of the parser
	EventParserDone                      // ID: of the parser
	EventParserExtract                   // ID: of the header
	EventDeparserStart                   // ID: of the deparser
	EventDeparserDone                    // ID: of the deparser
	EventDeparserEmit                    // ID: of the header
	EventChecksumUpdate                  // ID: of the checksum
	EventPipelineStart                   // ID: of the pipeline
	EventPipelineDone                    // ID: of the pipeline
	EventCondition                       // ID: of the condition; Value: 1 where it is true
	EventTableHit                        // ID: of the table; Value: the entry's handle
	EventTableMiss                       // ID: of the table
	EventActionExecute                   // ID: of the action
)

// EventConfigChange says that another program runs; it is no packet's.
const EventConfigChange EventKind = 999

// PacketName tells packets and their copies apart.
type PacketName struct {
	Signature uint64 // XXH64 of the bytes that the packet had when it, or the copy, was made
	ID        uint64 // packets count from 0, as they come in
	Copy      uint64 // 0, and copies from 1 on
}

// Event is a step of a packet's way.
type Event struct {
	Kind   EventKind
	Packet PacketName
	ID     int
	Value  int
}

// Events gets the steps of packets' ways. It must not call the Pipeline.
type Events interface {
	// Wanted reports whether anybody listens. It is asked once for each packet that comes in.
	Wanted() bool
	Event(Event)
}

// eventIDs are ids of the program, by what has them.
type eventIDs struct {
	ingress, egress int
	headers         []int // by header
}

func (c *compiler) eventIDs() {
	ids := &c.p.ids
	ids.ingress, ids.egress = c.prog.Pipeline("ingress").ID, c.prog.Pipeline("egress").ID
	ids.headers = make([]int, len(c.prog.Headers))
	for _, h := range c.prog.Headers {
		ids.headers[h.Index] = h.ID
	}
}

// event tells of a step of a packet, if anybody listens.
func (p *Pipeline) event(st *state, kind EventKind, id, value int) {
	if p.eventful {
		p.opts.Events.Event(Event{Kind: kind, Packet: st.name, ID: id, Value: value})
	}
}

// listens asks whether anybody listens.
func (p *Pipeline) listens() { p.eventful = p.opts.Events != nil && p.opts.Events.Wanted() }

// arrives names a packet that has come in.
func (p *Pipeline) arrives(st *state, port uint32, frame []byte) {
	id := p.arrived
	p.arrived++
	st.name, st.copies = PacketName{ID: id}, nil
	if p.eventful {
		st.name.Signature, st.copies = xxhash.Sum64(frame), new(uint64)
		p.event(st, EventPacketIn, int(port), 0)
	}
}

// nameCopy names a copy of a packet that is made with some bytes.
func (p *Pipeline) nameCopy(c, of *state, bytes []byte) {
	c.name, c.copies = of.name, of.copies
	if p.eventful && of.copies != nil {
		*of.copies++
		c.name.Copy, c.name.Signature = *of.copies, xxhash.Sum64(bytes)
	}
}

// runParser runs a parser.
func (p *Pipeline) runParser(q *parser, st *state) uint64 {
	p.event(st, EventParserStart, q.id, 0)
	err := q.run(st)
	p.event(st, EventParserDone, q.id, 0)
	return err
}

// runPipeline runs ingress or egress.
func (p *Pipeline) runPipeline(c *code, id int, st *state) {
	p.event(st, EventPipelineStart, id, 0)
	c.run(st)
	p.event(st, EventPipelineDone, id, 0)
}

// toldOp is an extraction that is told of. As in BMv2 that is before it is known whether the packet
// has as many bytes.
func (c *compiler) toldOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	if c.p.opts.Events == nil ||
		o.Kind != bmv2json.ParserExtract && o.Kind != bmv2json.ParserExtractVL {
		return op
	}
	p := c.p
	if o.Header != nil {
		return func(st *state) uint64 {
			p.event(st, EventParserExtract, o.Header.ID, 0)
			return op(st)
		}
	}
	at, ids := c.nextHeaders(o, func(h *bmv2json.Header) int { return h.ID })
	return func(st *state) uint64 {
		if n := st.next[at]; n < len(ids) {
			p.event(st, EventParserExtract, ids[n], 0)
		}
		return op(st)
	}
}

func (c *compiler) toldCondition(cd *bmv2json.Conditional, cond boolFn) boolFn {
	if c.p.opts.Events == nil {
		return cond
	}
	p := c.p
	return func(st *state) bool {
		yes := cond(st)
		value := 0
		if yes {
			value = 1
		}
		p.event(st, EventCondition, cd.ID, value)
		return yes
	}
}

// toldCall tells of an action that nothing chooses, and of the table that stands for it.
func (c *compiler) toldCall(t *table, a *action) doFn {
	return func(st *state) {
		t.p.event(st, EventTableMiss, t.src.ID, 0)
		t.p.event(st, EventActionExecute, a.src.ID, 0)
	}
}

// tell tells what was looked up in a table.
func (t *table) tell(st *state, e *entry) {
	if t.p.opts.Trace != nil {
		t.trace(st, e)
	}
	if e == nil {
		t.p.event(st, EventTableMiss, t.src.ID, 0)
		return
	}
	t.p.event(st, EventTableHit, t.src.ID, e.handle)
}

// tellCall tells what a table runs.
func (t *table) tellCall(st *state, do *call) {
	if t.p.opts.Trace != nil {
		t.traceCall(do)
	}
	t.p.event(st, EventActionExecute, do.act.src.ID, 0)
}

// handles are the handles of a table's entries, as BMv2 gives them: the lowest number that is free,
// with how often it was free before in the bits from 24 on.
type handles struct {
	free     freeHandles
	versions []uint8
}

type freeHandles []int

func (f freeHandles) Len() int           { return len(f) }
func (f freeHandles) Less(i, j int) bool { return f[i] < f[j] }
func (f freeHandles) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *freeHandles) Push(x any)        { *f = append(*f, x.(int)) }
func (f *freeHandles) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

const handleIndex = 1<<24 - 1

func (h *handles) take() int {
	if len(h.free) == 0 {
		h.versions = append(h.versions, 0)
		return len(h.versions) - 1
	}
	i := heap.Pop(&h.free).(int)
	return int(h.versions[i])<<24 | i
}

func (h *handles) release(handle int) {
	i := handle & handleIndex
	h.versions[i]++
	heap.Push(&h.free, i)
}
