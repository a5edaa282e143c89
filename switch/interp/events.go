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
	EventPacketIn       = packetevents.PacketIn       // ID is the port
	EventPacketOut      = packetevents.PacketOut      // ID is the port
	EventParserStart    = packetevents.ParserStart    // ID is the parser's
	EventParserDone     = packetevents.ParserDone     // ID is the parser's
	EventParserExtract  = packetevents.ParserExtract  // ID is the header's
	EventDeparserStart  = packetevents.DeparserStart  // ID is the deparser's
	EventDeparserDone   = packetevents.DeparserDone   // ID is the deparser's
	EventDeparserEmit   = packetevents.DeparserEmit   // ID is the header's
	EventChecksumUpdate = packetevents.ChecksumUpdate // ID is the checksum's
	EventPipelineStart  = packetevents.PipelineStart  // ID is the pipeline's
	EventPipelineDone   = packetevents.PipelineDone   // ID is the pipeline's
	// ID is the condition's; Value is 1 if the condition is true
	EventCondition = packetevents.Condition
	// ID is the table's; Value is the entry's handle
	EventTableHit      = packetevents.TableHit
	EventTableMiss     = packetevents.TableMiss     // ID is the table's
	EventActionExecute = packetevents.ActionExecute // ID is the action's
	// another program was loaded; this is not a step of a packet
	EventConfigChange = packetevents.ConfigChange
)
