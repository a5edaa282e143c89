package interp

import "slices"

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
	if h < 0 || !st.valid[h] || st.lay.metadata[h] {
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
		st.valid[dst] = st.lay.metadata[dst]
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

func (st *state) assignUnion(dst, src []int) {
	for i := range min(len(dst), len(src)) {
		st.assignHeader(dst[i], src[i])
	}
}

func (st *state) equalHeaders(x, y int) bool {
	if x < 0 || y < 0 || !st.valid[x] || !st.valid[y] {
		return false
	}
	hx, hy := &st.lay.headers[x], &st.lay.headers[y]
	return slices.Equal(st.w[hx.base:hx.base+hx.t.lanes], st.w[hy.base:hy.base+hy.t.lanes]) &&
		string(st.vl[x]) == string(st.vl[y])
}

// headerBytes writes a header as it is on the wire; b must have room for it.
func (st *state) headerBytes(b []byte, h int) int {
	hl := &st.lay.headers[h]
	lanes := st.w[hl.base : hl.base+hl.t.lanes]
	if !hl.t.vl {
		depositFields(b, lanes, hl.t.wire)
		return hl.t.bits / 8
	}
	head := hl.t.head / 8
	depositFields(b, lanes, hl.t.wire)
	n := copy(b[head:], st.vl[h])
	depositFields(b[head+n:], lanes, hl.t.after)
	return hl.t.bits/8 + n
}
