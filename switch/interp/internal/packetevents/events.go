package packetevents

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Kind is a kind of step in a packet's processing. Its value is the number that BMv2's event logger
// uses.
type Kind int32

// The kinds of steps. Event.ID is the id in the program's JSON unless the comment of the kind says
// otherwise.
const (
	PacketIn       Kind = iota // Event.ID is the port number
	PacketOut                  // Event.ID is the port number
	ParserStart                // Event.ID is the parser's id
	ParserDone                 // Event.ID is the parser's id
	ParserExtract              // Event.ID is the header's id
	DeparserStart              // Event.ID is the deparser's id
	DeparserDone               // Event.ID is the deparser's id
	DeparserEmit               // Event.ID is the header's id
	ChecksumUpdate             // Event.ID is the checksum's id
	PipelineStart              // Event.ID is the pipeline's id
	PipelineDone               // Event.ID is the pipeline's id
	// Event.ID is the condition's id; Event.Value is 1 if the condition is true
	Condition
	TableHit      // Event.ID is the table's id; Event.Value is the entry's handle
	TableMiss     // Event.ID is the table's id
	ActionExecute // Event.ID is the action's id
)

// ConfigChange is the event that another program was loaded. It is not a step of a packet.
const ConfigChange Kind = 999

// Event is a step in the processing of a packet.
type Event struct {
	Kind   Kind
	Packet packet.Name
	ID     int
	Value  int
}

// Listener receives the steps of each packet's processing. It must not call the Pipeline.
type Listener interface {
	// Wanted reports whether anybody listens. It is called once for each received packet.
	Wanted() bool
	Event(Event)
}
