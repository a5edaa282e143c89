package interp

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// observer tells those that watch what becomes of packets. Nil functions are those of nobody.
type observer struct {
	events  Events
	onTrace func(string)
	// of events: packets received, and whether anybody listens during this one
	arrived  uint64
	eventful bool
	traced   uint64 // packets received, to tell their steps apart
	tracing  uint64 // the number of the one under way
}

// watches reports whether anybody may want to know of each statement.
func (o *observer) watches() bool { return o.onTrace != nil || o.events != nil }

func (o *observer) traces() bool { return o.onTrace != nil }
func (o *observer) tells() bool  { return o.events != nil }

// event tells of a step of a packet, if anybody listens.
func (o *observer) event(st *state, kind EventKind, id, value int) {
	if o.eventful {
		o.events.Event(Event{Kind: kind, Packet: st.name, ID: id, Value: value})
	}
}

// listen asks whether anybody listens.
func (o *observer) listen() { o.eventful = o.events != nil && o.events.Wanted() }

// arrives names a packet that has come in.
func (o *observer) arrives(st *state, port uint32, frame []byte) {
	id := o.arrived
	o.arrived++
	st.name, st.copies = PacketName{ID: id}, nil
	if o.eventful {
		st.name.Signature, st.copies = xxhash.Sum64(frame), new(uint64)
		o.event(st, EventPacketIn, int(port), 0)
	}
}

// nameCopy names a copy of a packet that is made with some bytes.
func (o *observer) nameCopy(c, of *state, bytes []byte) {
	c.name, c.copies = of.name, of.copies
	if o.eventful && of.copies != nil {
		*of.copies++
		c.name.Copy, c.name.Signature = *of.copies, xxhash.Sum64(bytes)
	}
}

// traceNext begins the trace of another packet.
func (o *observer) traceNext() {
	o.traced++
	o.tracing = o.traced
}

// trace says a step of the packet under way. The caller has looked whether anybody listens.
func (o *observer) trace(format string, args ...any) {
	o.onTrace(fmt.Sprintf("[%d] ", o.tracing) + fmt.Sprintf(format, args...))
}

// traceStep is trace for whom it would not be worth the looking.
func (o *observer) traceStep(what string) {
	if o.onTrace != nil {
		o.trace("%s", what)
	}
}
