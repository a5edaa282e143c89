package packetevents

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Observer reports the processing of packets to a listener and to a trace. Either may be missing.
type Observer struct {
	events   Listener
	arrived  uint64 // number of packets received so far, which becomes part of a packet's name
	eventful bool   // set if the listener wants the events of the present packet

	onTrace func(string)
	// number of packets received since tracing began, which becomes a packet's number in the trace
	traced  uint64
	tracing uint64 // the number of the present packet in the trace
}

// New returns an Observer. events is nil if there is no listener, and trace is nil if there is no
// trace.
func New(events Listener, trace func(string)) *Observer {
	return &Observer{events: events, onTrace: trace}
}

// Watches reports whether anybody may observe statements.
func (o *Observer) Watches() bool { return o.onTrace != nil || o.events != nil }

// HasTrace reports whether steps are traced.
func (o *Observer) HasTrace() bool { return o.onTrace != nil }

// HasListener reports whether there is a listener. The listener may not want the events of this
// packet.
func (o *Observer) HasListener() bool { return o.events != nil }

// Event reports a step of a packet to the listener, if the listener wants this packet's events.
func (o *Observer) Event(st *packet.State, kind Kind, id, value int) {
	if o.eventful {
		o.events.Event(Event{Kind: kind, Packet: st.Name, ID: id, Value: value})
	}
}

// Listen asks the listener whether it wants the events of the next packet.
func (o *Observer) Listen() { o.eventful = o.events != nil && o.events.Wanted() }

// NamePacket names a received packet.
func (o *Observer) NamePacket(st *packet.State, port uint32, frame []byte) {
	id := o.arrived
	o.arrived++
	st.Name, st.Copies = packet.Name{ID: id}, nil
	if o.eventful {
		st.Name.Signature, st.Copies = xxhash.Sum64(frame), new(uint64)
		o.Event(st, PacketIn, int(port), 0)
	}
}

// NameCopy names a copy of a packet. bytes is the content of the copy.
func (o *Observer) NameCopy(c, of *packet.State, bytes []byte) {
	c.Name, c.Copies = of.Name, of.Copies
	if o.eventful && of.Copies != nil {
		*of.Copies++
		c.Name.Copy, c.Name.Signature = *of.Copies, xxhash.Sum64(bytes)
	}
}

// TraceNext begins the trace of the next packet.
func (o *Observer) TraceNext() {
	o.traced++
	o.tracing = o.traced
}

// Tracef traces a step of the present packet. The caller must check HasTrace first, so that it
// computes the arguments only if somebody reads them.
func (o *Observer) Tracef(format string, args ...any) {
	o.onTrace(fmt.Sprintf("[%d] ", o.tracing) + fmt.Sprintf(format, args...))
}

// TraceStep traces a step without arguments if there is a trace.
func (o *Observer) TraceStep(what string) {
	if o.onTrace != nil {
		o.Tracef("%s", what)
	}
}

// LastNumber returns the number of the newest packet.
func (o *Observer) LastNumber() uint64 { return o.traced }

// ResumeTrace continues the trace of the packet with this number.
func (o *Observer) ResumeTrace(number uint64) { o.tracing = number }
