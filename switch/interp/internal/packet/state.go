package packet

import (
	"time"
)

// State is one packet while the program processes it. It corresponds to both the PHV and the packet
// of BMv2.
type State struct {
	Layout *Layout

	Lanes         []uint64 // the lanes of all fields
	Valid         []bool   // indexed by header; metadata is always valid
	StackCounters []int    // number of elements in use, by stack and then by union stack
	Varbits       [][]byte // content of varbit fields, by header

	Parameters []uint64 // Parameters of the action that is running.
	Scratch    []uint64 // lanes for the results of wide expressions
	Input      []byte   // buffer in which a calculation joins its inputs

	Frame       []byte        // the whole packet as the parser received it
	Offset      int           // number of bytes of Frame that the parser has consumed
	Payload     []byte        // the bytes that the parser did not consume
	Now         time.Duration // the time at which this packet is processed
	IngressPort uint32
	EgressPort  uint32
	QueueDepth  uint64 // number of packets that wait at EgressPort
	// Priority selects the packet's queue at EgressPort. EnqueuedAt is the time at which the packet
	// entered the queue.
	Priority   int
	EnqueuedAt time.Duration
	kept       []byte // memory to which OwnFrame copies the bytes of a waiting packet
	// The packet's name in events, and the number of copies that were made of the packet.
	Name           Name
	Copies         *uint64
	ReceivedLength int // in bytes

	// Length is the packet's length as BMv2 counts it: the received length, plus added headers,
	// minus removed headers.
	Length     int
	TruncateTo int // length in bytes to which the outgoing packet is truncated

	Exited       bool
	Dropped      bool // set if an assertion failed
	JumpTarget   int  // the action's next statement, if a primitive has set it, otherwise -1
	Cloning      bool
	CloneSession uint32
	// Field lists of a clone, a resubmission and a recirculation. 0 means that none was requested.
	CloneList       int
	ResubmitList    int
	RecirculateList int
	DigestList      int
}

// NoTruncation is the value of TruncateTo for a packet that is not truncated.
const NoTruncation = int(^uint(0) >> 1)

// NewState allocates a packet. Clear must be called before its first use.
func NewState(lay *Layout) *State {
	return &State{
		Layout: lay,
		Lanes:  make([]uint64, lay.Lanes), Valid: make([]bool, len(lay.Headers)),
		StackCounters: make([]int, lay.stacks), Varbits: make([][]byte, len(lay.Headers)),
		Scratch: make([]uint64, lay.ScratchLanes),
	}
}

// Clear resets the State for a new packet.
func (st *State) Clear() {
	clear(st.Lanes)
	copy(st.Valid, st.Layout.metadata)
	clear(st.StackCounters)
	for _, h := range st.Layout.varbits {
		st.Varbits[h] = st.Varbits[h][:0]
	}
	for _, at := range st.Layout.Zeroed {
		st.Scratch[at] = 0
	}
	st.Length, st.TruncateTo, st.Exited, st.Dropped = 0, NoTruncation, false, false
	st.ClearRequests()
	st.RecirculateList = 0
}

// ClearRequests clears the requests that the engine serves after the pipeline.
func (st *State) ClearRequests() {
	st.Cloning, st.CloneSession, st.CloneList, st.ResubmitList, st.DigestList = false, 0, 0, 0, 0
}

// ClearMetadata sets every metadata field to 0.
func (st *State) ClearMetadata() {
	for _, r := range st.Layout.metaLanes {
		clear(st.Lanes[r.From:r.To])
	}
}

// CopyHeaders copies the headers and metadata of src.
func (st *State) CopyHeaders(src *State) {
	copy(st.Lanes, src.Lanes)
	copy(st.Valid, src.Valid)
	copy(st.StackCounters, src.StackCounters)
	for _, h := range st.Layout.varbits {
		st.Varbits[h] = append(st.Varbits[h][:0], src.Varbits[h]...)
	}
}

// CutPayload returns the part of the packet after its headers, truncated as the program requested.
func (st *State) CutPayload() []byte {
	return st.Payload[:min(len(st.Payload), st.TruncateTo)]
}

// OwnFrame copies the packet's bytes into memory of the State. This is necessary if the packet
// waits, because the caller owns the bytes that it passed in.
func (st *State) OwnFrame() {
	n := len(st.Frame)
	st.kept = append(append(st.kept[:0], st.Frame...), st.Payload...)
	st.Frame, st.Payload = st.kept[:n:n], st.kept[n:]
}

// Name identifies a packet or a copy of a packet.
type Name struct {
	Signature uint64 // XXH64 of the bytes that the packet or copy had when it was made
	ID        uint64 // the number of the received packet, counted from 0
	Copy      uint64 // 0 for the packet itself; copies count from 1
}
