package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// Events gets the steps of each packet's processing. It must not call the Pipeline.
type Events = packetevents.Listener

// Event is a step in the processing of a packet.
type Event = packetevents.Event

// EventKind is a kind of step, with the number of BMv2's event logger.
type EventKind = packetevents.Kind

// PacketName distinguishes packets and their copies.
type PacketName = packet.Name

// The kinds of step. Event.ID is an id of the program's JSON unless the line says otherwise.
const (
	EventPacketIn       = packetevents.PacketIn       // ID: the port
	EventPacketOut      = packetevents.PacketOut      // ID: the port
	EventParserStart    = packetevents.ParserStart    // ID: of the parser
	EventParserDone     = packetevents.ParserDone     // ID: of the parser
	EventParserExtract  = packetevents.ParserExtract  // ID: of the header
	EventDeparserStart  = packetevents.DeparserStart  // ID: of the deparser
	EventDeparserDone   = packetevents.DeparserDone   // ID: of the deparser
	EventDeparserEmit   = packetevents.DeparserEmit   // ID: of the header
	EventChecksumUpdate = packetevents.ChecksumUpdate // ID: of the checksum
	EventPipelineStart  = packetevents.PipelineStart  // ID: of the pipeline
	EventPipelineDone   = packetevents.PipelineDone   // ID: of the pipeline
	EventCondition      = packetevents.Condition      // ID: of the condition; Value: 1 if it is true
	EventTableHit       = packetevents.TableHit       // ID: of the table; Value: the entry's handle
	EventTableMiss      = packetevents.TableMiss      // ID: of the table
	EventActionExecute  = packetevents.ActionExecute  // ID: of the action
	EventConfigChange   = packetevents.ConfigChange   // another program was loaded; not a step of a packet
)
