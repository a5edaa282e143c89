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
	PacketIn       Kind = iota // ID is the port
	PacketOut                  // ID is the port
	ParserStart                // ID is the parser's
	ParserDone                 // ID is the parser's
	ParserExtract              // ID is the header's
	DeparserStart              // ID is the deparser's
	DeparserDone               // ID is the deparser's
	DeparserEmit               // ID is the header's
	ChecksumUpdate             // ID is the checksum's
	PipelineStart              // ID is the pipeline's
	PipelineDone               // ID is the pipeline's
	Condition                  // ID is the condition's; Value is 1 if the condition is true
	TableHit                   // ID is the table's; Value is the entry's handle
	TableMiss                  // ID is the table's
	ActionExecute              // ID is the action's
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
