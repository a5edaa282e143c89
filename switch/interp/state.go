package interp

import (
	"time"
)

// state is one packet on its way through the program: BMv2's PHV and packet in one.
type state struct {
	p   *Pipeline
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

func newState(p *Pipeline) *state {
	return &state{
		p: p, lay: p.lay,
		w: make([]uint64, p.lay.lanes), valid: make([]bool, len(p.lay.headers)),
		next: make([]int, p.stacks), vl: make([][]byte, len(p.lay.headers)),
		scratch: make([]uint64, p.scratch),
	}
}

// clear makes the state that of a packet of which nothing is known.
func (st *state) clear() {
	clear(st.w)
	copy(st.valid, st.p.metadata)
	clear(st.next)
	for _, h := range st.p.varbits {
		st.vl[h] = st.vl[h][:0]
	}
	for _, at := range st.p.checksums {
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
	for _, r := range st.p.metaLanes {
		clear(st.w[r[0]:r[1]])
	}
}

// copyPHV takes over the headers and metadata of src.
func (st *state) copyPHV(src *state) {
	copy(st.w, src.w)
	copy(st.valid, src.valid)
	copy(st.next, src.next)
	for _, h := range st.p.varbits {
		st.vl[h] = append(st.vl[h][:0], src.vl[h]...)
	}
}

// data is what of the packet's bytes is left, cut where the program said so.
func (st *state) data() []byte {
	return st.payload[:min(len(st.payload), st.truncate)]
}

// size is the size in bytes of a header on the wire.
func (st *state) size(h int) int {
	return (st.lay.headers[h].t.bits)/8 + len(st.vl[h])
}

// setValid makes a header valid, and with it the other members of its union invalid.
func (st *state) setValid(h int) {
	st.valid[h] = true
	for _, s := range st.lay.headers[h].siblings {
		st.valid[s] = false
	}
}

// addHeader is P4's setValid(): a header that was not valid starts out with all fields 0.
func (st *state) addHeader(h int) {
	if h < 0 || st.valid[h] {
		return
	}
	hl := &st.lay.headers[h]
	clear(st.w[hl.base : hl.base+hl.t.lanes])
	st.vl[h] = st.vl[h][:0]
	st.setValid(h)
	st.length += st.size(h)
}

// removeHeader is P4's setInvalid().
func (st *state) removeHeader(h int) {
	if h < 0 || !st.valid[h] || st.p.metadata[h] {
		return
	}
	st.length -= st.size(h)
	st.valid[h] = false
}

// assignHeader copies src, validity included, to dst, which is of the same type.
func (st *state) assignHeader(dst, src int) {
	if dst < 0 || dst == src {
		return
	}
	if src < 0 || !st.valid[src] {
		st.valid[dst] = st.p.metadata[dst]
		return
	}
	st.setValid(dst)
	st.copyFields(dst, src)
}

func (st *state) copyFields(dst, src int) {
	d, s := &st.lay.headers[dst], &st.lay.headers[src]
	copy(st.w[d.base:d.base+d.t.lanes], st.w[s.base:s.base+s.t.lanes])
	if d.t.vl {
		st.vl[dst] = append(st.vl[dst][:0], st.vl[src]...)
	}
}

// moveHeader is assignHeader for the shifting of a stack: dst takes all that src is, whether it is
// valid or not.
func (st *state) moveHeader(dst, src int) {
	st.valid[dst] = st.valid[src]
	st.copyFields(dst, src)
}
