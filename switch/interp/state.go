package interp

import (
	"time"
)

// state is one packet on its way through the program: BMv2's PHV and packet in one.
type state struct {
	lay *layout

	w     []uint64 // the fields' lanes
	valid []bool   // by header; metadata is always valid
	next  []int    // by stack, then by union stack: how many elements are in use
	vl    [][]byte // by header: what its varbit field holds

	params  []uint64 // the parameters of the action that runs
	scratch []uint64 // for the wide expressions
	bits    []byte   // for the inputs of a calculation

	frame   []byte        // the whole packet as it entered this pass of the parser
	pos     int           // how far into the frame the parser is
	payload []byte        // what of it the parser did not take
	now     time.Duration // the clock during this packet
	inPort  uint32
	outPort uint32
	depth   uint64 // how many packets wait at outPort
	// the queue that the packet is in there, and since when
	priority int
	queuedAt time.Duration
	kept     []byte // the bytes of a packet that waits
	// in events: its name, and how many copies there have been
	name   PacketName
	copies *uint64
	inLen  int // bytes, as received

	// BMv2's idea of the packet's length: as received, plus headers added, minus headers removed
	length   int
	truncate int // bytes to which the packet is cut on its way out

	exit     bool
	dropped  bool // an assertion failed
	jump     int  // where the action goes on, where a primitive has said so; -1 otherwise
	cloning  bool
	session  uint32
	cloneFL  int // field lists: of a clone, a resubmit, a recirculation; 0 is none
	resubmit int
	recirc   int
	digest   int
}

const noTruncation = int(^uint(0) >> 1)

func newState(lay *layout) *state {
	return &state{
		lay: lay,
		w:   make([]uint64, lay.lanes), valid: make([]bool, len(lay.headers)),
		next: make([]int, lay.stacks), vl: make([][]byte, len(lay.headers)),
		scratch: make([]uint64, lay.scratch),
	}
}

// clear makes the state that of a packet of which nothing is known.
func (st *state) clear() {
	clear(st.w)
	copy(st.valid, st.lay.metadata)
	clear(st.next)
	for _, h := range st.lay.varbits {
		st.vl[h] = st.vl[h][:0]
	}
	for _, at := range st.lay.sums {
		st.scratch[at] = 0
	}
	st.length, st.truncate, st.exit, st.dropped = 0, noTruncation, false, false
	st.clearRequests()
	st.recirc = 0
}

// clearRequests forgets what the program asked to be done with the packet after the pipeline.
func (st *state) clearRequests() {
	st.cloning, st.session, st.cloneFL, st.resubmit, st.digest = false, 0, 0, 0, 0
}

// clearMetadata sets every metadata field to 0.
func (st *state) clearMetadata() {
	for _, r := range st.lay.metaLanes {
		clear(st.w[r.from:r.to])
	}
}

// copyPHV takes over the headers and metadata of src.
func (st *state) copyPHV(src *state) {
	copy(st.w, src.w)
	copy(st.valid, src.valid)
	copy(st.next, src.next)
	for _, h := range st.lay.varbits {
		st.vl[h] = append(st.vl[h][:0], src.vl[h]...)
	}
}

// data is what of the packet's bytes is left, cut where the program said so.
func (st *state) data() []byte {
	return st.payload[:min(len(st.payload), st.truncate)]
}

// keepFrame makes the packet's bytes its own: those that it came in are the caller's.
func (st *state) keepFrame() {
	n := len(st.frame)
	st.kept = append(append(st.kept[:0], st.frame...), st.payload...)
	st.frame, st.payload = st.kept[:n:n], st.kept[n:]
}
