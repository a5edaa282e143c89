package interp

// EventKind is a kind of step of a packet's way, with the number that BMv2's event logger gives it.
type EventKind int32

// The kinds of step. What Event.ID says is an id of the program's JSON, where nothing else is said.
const (
	EventPacketIn       EventKind = iota // ID: the port
	EventPacketOut                       // ID: the port
	EventParserStart                     // ID: of the parser
	EventParserDone                      // ID: of the parser
	EventParserExtract                   // ID: of the header
	EventDeparserStart                   // ID: of the deparser
	EventDeparserDone                    // ID: of the deparser
	EventDeparserEmit                    // ID: of the header
	EventChecksumUpdate                  // ID: of the checksum
	EventPipelineStart                   // ID: of the pipeline
	EventPipelineDone                    // ID: of the pipeline
	EventCondition                       // ID: of the condition; Value: 1 where it is true
	EventTableHit                        // ID: of the table; Value: the entry's handle
	EventTableMiss                       // ID: of the table
	EventActionExecute                   // ID: of the action
)

// EventConfigChange says that another program runs; it is no packet's.
const EventConfigChange EventKind = 999

// PacketName tells packets and their copies apart.
type PacketName struct {
	Signature uint64 // XXH64 of the bytes that the packet had when it, or the copy, was made
	ID        uint64 // packets count from 0, as they come in
	Copy      uint64 // 0, and copies from 1 on
}

// Event is a step of a packet's way.
type Event struct {
	Kind   EventKind
	Packet PacketName
	ID     int
	Value  int
}

// Events gets the steps of packets' ways. It must not call the Pipeline.
type Events interface {
	// Wanted reports whether anybody listens. It is asked once for each packet that comes in.
	Wanted() bool
	Event(Event)
}
