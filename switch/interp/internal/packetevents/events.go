package packetevents

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Kind is a kind of step in a packet's processing, with the number of BMv2's event logger.
type Kind int32

// The kinds of step. Event.ID is an id of the program's JSON, unless the line says otherwise.
const (
	PacketIn       Kind = iota // ID: the port
	PacketOut                  // ID: the port
	ParserStart                // ID: of the parser
	ParserDone                 // ID: of the parser
	ParserExtract              // ID: of the header
	DeparserStart              // ID: of the deparser
	DeparserDone               // ID: of the deparser
	DeparserEmit               // ID: of the header
	ChecksumUpdate             // ID: of the checksum
	PipelineStart              // ID: of the pipeline
	PipelineDone               // ID: of the pipeline
	Condition                  // ID: of the condition; Value: 1 if it is true
	TableHit                   // ID: of the table; Value: the entry's handle
	TableMiss                  // ID: of the table
	ActionExecute              // ID: of the action
)

// ConfigChange says that another program was loaded. It is not a step of a packet.
const ConfigChange Kind = 999

// Event is a step in the processing of a packet.
type Event struct {
	Kind   Kind
	Packet packet.Name
	ID     int
	Value  int
}

// Listener gets the steps of each packet's processing. It must not call the Pipeline.
type Listener interface {
	// Wanted reports whether anybody listens. It is called once for each received packet.
	Wanted() bool
	Event(Event)
}
