package packet

import (
	"time"
)

// State is one packet while the program processes it: BMv2's PHV and packet in one.
type State struct {
	Layout *Layout

	Lanes         []uint64 // the fields' lanes
	Valid         []bool   // by header; metadata is always valid
	StackCounters []int    // by stack, then by union stack: number of elements in use
	Varbits       [][]byte // by header: content of its varbit field

	Parameters []uint64 // the parameters of the running action
	Scratch    []uint64 // lanes for the results of wide expressions
	Input      []byte   // buffer for the joined inputs of a calculation

	Frame       []byte        // the whole packet as it entered this pass of the parser
	Offset      int           // number of bytes of Frame that the parser has passed
	Payload     []byte        // the part that the parser did not consume
	Now         time.Duration // the clock during this packet
	IngressPort uint32
	EgressPort  uint32
	QueueDepth  uint64 // number of packets that wait at EgressPort
	// Priority is the packet's queue at EgressPort, and EnqueuedAt the time when it entered the
	// queue
	Priority   int
	EnqueuedAt time.Duration
	kept       []byte // memory to which OwnFrame copies the bytes of a waiting packet
	// the packet's name in events, and the number of its copies so far
	Name           Name
	Copies         *uint64
	ReceivedLength int // bytes

	// Length is the packet's length by BMv2's count: as received, plus headers added, minus headers
	// removed
	Length     int
	TruncateTo int // bytes to which the packet is cut on its way out

	Exited       bool
	Dropped      bool // an assertion failed
	JumpTarget   int  // the next statement of the action, if a primitive has set it; otherwise -1
	Cloning      bool
	CloneSession uint32
	// the next three: field list of a clone, a resubmit, a recirculation; 0: none
	CloneList       int
	ResubmitList    int
	RecirculateList int
	DigestList      int
}

// NoTruncation is the TruncateTo of a packet that is not cut.
const NoTruncation = int(^uint(0) >> 1)

// NewState allocates a packet. Call Clear before its first use.
func NewState(lay *Layout) *State {
	return &State{
		Layout: lay,
		Lanes:  make([]uint64, lay.Lanes), Valid: make([]bool, len(lay.Headers)),
		StackCounters: make([]int, lay.stacks), Varbits: make([][]byte, len(lay.Headers)),
		Scratch: make([]uint64, lay.ScratchLanes),
	}
}

// Clear resets the state for a new packet.
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

// ClearRequests clears the requests that the target serves after the pipeline.
func (st *State) ClearRequests() {
	st.Cloning, st.CloneSession, st.CloneList, st.ResubmitList, st.DigestList = false, 0, 0, 0, 0
}

// ClearMetadata sets every metadata field to 0.
func (st *State) ClearMetadata() {
	for _, r := range st.Layout.metaLanes {
		clear(st.Lanes[r.From:r.To])
	}
}

// CopyHeaders takes over the headers and metadata of src.
func (st *State) CopyHeaders(src *State) {
	copy(st.Lanes, src.Lanes)
	copy(st.Valid, src.Valid)
	copy(st.StackCounters, src.StackCounters)
	for _, h := range st.Layout.varbits {
		st.Varbits[h] = append(st.Varbits[h][:0], src.Varbits[h]...)
	}
}

// CutPayload returns the rest of the packet's bytes, truncated as the program requested.
func (st *State) CutPayload() []byte {
	return st.Payload[:min(len(st.Payload), st.TruncateTo)]
}

// OwnFrame copies the packet's bytes into memory of the State, because the caller owns the bytes
// that it passed in.
func (st *State) OwnFrame() {
	n := len(st.Frame)
	st.kept = append(append(st.kept[:0], st.Frame...), st.Payload...)
	st.Frame, st.Payload = st.kept[:n:n], st.kept[n:]
}

// Name distinguishes packets and their copies.
type Name struct {
	Signature uint64 // XXH64 of the bytes of the packet, or of the copy, when it was made
	ID        uint64 // the number of the received packet, from 0
	Copy      uint64 // 0 for the packet itself; copies count from 1
}
