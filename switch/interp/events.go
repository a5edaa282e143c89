package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// Events receives the steps of each packet's processing. It must not call the Pipeline.
type Events = packetevents.Listener

// Event is a step in the processing of a packet.
type Event = packetevents.Event

// EventKind is a kind of step. Its value is the number that BMv2's event logger uses.
type EventKind = packetevents.Kind

// PacketName distinguishes packets and their copies.
type PacketName = packet.Name

// The kinds of steps. Event.ID is the id in the program's JSON unless the comment of the kind says
// otherwise.
const (
	EventPacketIn       = packetevents.PacketIn       // Event.ID is the port number
	EventPacketOut      = packetevents.PacketOut      // Event.ID is the port number
	EventParserStart    = packetevents.ParserStart    // Event.ID is the parser's id
	EventParserDone     = packetevents.ParserDone     // Event.ID is the parser's id
	EventParserExtract  = packetevents.ParserExtract  // Event.ID is the header's id
	EventDeparserStart  = packetevents.DeparserStart  // Event.ID is the deparser's id
	EventDeparserDone   = packetevents.DeparserDone   // Event.ID is the deparser's id
	EventDeparserEmit   = packetevents.DeparserEmit   // Event.ID is the header's id
	EventChecksumUpdate = packetevents.ChecksumUpdate // Event.ID is the checksum's id
	EventPipelineStart  = packetevents.PipelineStart  // Event.ID is the pipeline's id
	EventPipelineDone   = packetevents.PipelineDone   // Event.ID is the pipeline's id
	// Event.ID is the condition's id; Event.Value is 1 if the condition is true
	EventCondition = packetevents.Condition
	// Event.ID is the table's id; Event.Value is the entry's handle
	EventTableHit      = packetevents.TableHit
	EventTableMiss     = packetevents.TableMiss     // Event.ID is the table's id
	EventActionExecute = packetevents.ActionExecute // Event.ID is the action's id
	// another program was loaded; this is not a step of a packet
	EventConfigChange = packetevents.ConfigChange
)
