package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/observe"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Events gets the steps of packets' ways. It must not call the Pipeline.
type Events = observe.Listener

// Event is a step of a packet's way.
type Event = observe.Event

// EventKind is a kind of step of a packet's way, with the number that BMv2's event logger gives it.
type EventKind = observe.Kind

// PacketName tells packets and their copies apart.
type PacketName = packet.Name

// The kinds of step. Event.ID is an id of the program's JSON unless the line says otherwise.
const (
	EventPacketIn       = observe.PacketIn       // ID: the port
	EventPacketOut      = observe.PacketOut      // ID: the port
	EventParserStart    = observe.ParserStart    // ID: of the parser
	EventParserDone     = observe.ParserDone     // ID: of the parser
	EventParserExtract  = observe.ParserExtract  // ID: of the header
	EventDeparserStart  = observe.DeparserStart  // ID: of the deparser
	EventDeparserDone   = observe.DeparserDone   // ID: of the deparser
	EventDeparserEmit   = observe.DeparserEmit   // ID: of the header
	EventChecksumUpdate = observe.ChecksumUpdate // ID: of the checksum
	EventPipelineStart  = observe.PipelineStart  // ID: of the pipeline
	EventPipelineDone   = observe.PipelineDone   // ID: of the pipeline
	EventCondition      = observe.Condition      // ID: of the condition; Value: 1 where it is true
	EventTableHit       = observe.TableHit       // ID: of the table; Value: the entry's handle
	EventTableMiss      = observe.TableMiss      // ID: of the table
	EventActionExecute  = observe.ActionExecute  // ID: of the action
	EventConfigChange   = observe.ConfigChange   // another program runs; this is not a packet's step
)
