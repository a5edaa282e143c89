package packet

import (
	"time"
)

// State is one packet on its way through the program: BMv2's PHV and packet in one.
type State struct {
	Layout *Layout

	Lanes         []uint64 // the fields' lanes
	Valid         []bool   // by header; metadata is always valid
	StackCounters []int    // by stack, then by union stack: number of elements in use
	Varbits       [][]byte // by header: content of its varbit field

	Parameters []uint64 // the parameters of the action that runs
	Scratch    []uint64 // for the wide expressions
	Input      []byte   // for the inputs of a calculation

	Frame       []byte        // the whole packet as it entered this pass of the parser
	Offset      int           // number of its bytes that the parser has passed
	Payload     []byte        // the part that the parser did not consume
	Now         time.Duration // the clock during this packet
	IngressPort uint32
	EgressPort  uint32
	QueueDepth  uint64 // number of packets that wait at EgressPort
	// the queue that the packet is in there, and since when
	Priority   int
	EnqueuedAt time.Duration
	kept       []byte // the bytes of a packet that waits
	// in events: its name, and the number of copies so far
	Name           Name
	Copies         *uint64
	ReceivedLength int // bytes

	// BMv2's idea of the packet's length: as received, plus headers added, minus headers removed
	Length     int
	TruncateTo int // bytes to which the packet is cut on its way out

	Exited          bool
	Dropped         bool // an assertion failed
	JumpTarget      int  // where the action continues, if a primitive has said so; -1 otherwise
	Cloning         bool
	CloneSession    uint32
	CloneList       int // field lists: of a clone, a resubmit, a recirculation; 0: none
	ResubmitList    int
	RecirculateList int
	DigestList      int
}

// NoTruncation is the TruncateTo of a packet that is not cut.
const NoTruncation = int(^uint(0) >> 1)

// NewState makes room for a packet. Clear has to come before its first use.
func NewState(lay *Layout) *State {
	return &State{
		Layout: lay,
		Lanes:  make([]uint64, lay.Lanes), Valid: make([]bool, len(lay.Headers)),
		StackCounters: make([]int, lay.stacks), Varbits: make([][]byte, len(lay.Headers)),
		Scratch: make([]uint64, lay.ScratchLanes),
	}
}

// Clear resets the state to that of a packet of which nothing is known.
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

// ClearRequests forgets the program's requests for the packet after the pipeline.
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

// CutPayload is the rest of the packet's bytes, truncated where the program said so.
func (st *State) CutPayload() []byte {
	return st.Payload[:min(len(st.Payload), st.TruncateTo)]
}

// OwnFrame makes the packet's bytes its own: those that it came in are the caller's.
func (st *State) OwnFrame() {
	n := len(st.Frame)
	st.kept = append(append(st.kept[:0], st.Frame...), st.Payload...)
	st.Frame, st.Payload = st.kept[:n:n], st.kept[n:]
}

// Name tells packets and their copies apart.
type Name struct {
	Signature uint64 // XXH64 of the bytes that the packet had when it, or the copy, was made
	ID        uint64 // packets count from 0, as they come in
	Copy      uint64 // 0, and copies from 1 on
}
