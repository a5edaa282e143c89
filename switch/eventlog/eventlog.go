// Package eventlog publishes the steps of each packet's processing like BMv2's event logger. It
// sends one nanomsg message for each step. BMv2's listeners, such as nanomsg_client.py and
// p4-utils, can read the messages. Numbers are little-endian.
package eventlog

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/nanomsg"
)

// Log implements [interp.Events].
type Log struct {
	device    uint64
	publisher *nanomsg.Publisher
}

var _ interp.Events = (*Log)(nil)

// New creates the event log of a device.
func New(device uint64, publisher *nanomsg.Publisher) *Log {
	return &Log{device: device, publisher: publisher}
}

// Wanted implements [interp.Events].
func (l *Log) Wanted() bool { return l.publisher.Subscribed() }

// Event implements [interp.Events]. It does not block.
func (l *Log) Event(e interp.Event) { l.publisher.Publish(encode(l.device, e)) }

// encode encodes a step as a message: the event kind, the device, the context (always 0), the
// packet's name, and the fields of this event kind.
func encode(device uint64, e interp.Event) []byte {
	order := binary.LittleEndian
	m := make([]byte, 0, 48)
	m = order.AppendUint32(m, uint32(e.Kind))
	m = order.AppendUint64(m, device)
	m = order.AppendUint32(m, 0)
	m = order.AppendUint64(m, e.Packet.Signature)
	m = order.AppendUint64(m, e.Packet.ID)
	m = order.AppendUint64(m, e.Packet.Copy)
	if e.Kind == interp.EventConfigChange {
		return m
	}
	m = order.AppendUint32(m, uint32(e.ID))
	if e.Kind == interp.EventCondition || e.Kind == interp.EventTableHit {
		m = order.AppendUint32(m, uint32(e.Value))
	}
	return m
}
