package packet

import "slices"

// HeaderSize returns the size in bytes of a header on the wire.
func (st *State) HeaderSize(h int) int {
	return (st.Layout.Headers[h].Type.FixedBits)/8 + len(st.Varbits[h])
}

// SetValid makes a header valid, and the other members of its union invalid.
func (st *State) SetValid(h int) {
	st.Valid[h] = true
	for _, s := range st.Layout.Headers[h].Siblings {
		st.Valid[s] = false
	}
}

// AddHeader is P4's setValid(). If the header was invalid, all its fields become 0.
func (st *State) AddHeader(h int) {
	if h < 0 || st.Valid[h] {
		return
	}
	hl := &st.Layout.Headers[h]
	clear(st.Lanes[hl.Base : hl.Base+hl.Type.Lanes])
	st.Varbits[h] = st.Varbits[h][:0]
	st.SetValid(h)
	st.Length += st.HeaderSize(h)
}

// RemoveHeader is P4's setInvalid().
func (st *State) RemoveHeader(h int) {
	if h < 0 || !st.Valid[h] || st.Layout.metadata[h] {
		return
	}
	st.Length -= st.HeaderSize(h)
	st.Valid[h] = false
}

// AssignHeader copies src with its validity to dst. Both headers have the same type.
func (st *State) AssignHeader(dst, src int) {
	if dst < 0 || dst == src {
		return
	}
	if src < 0 || !st.Valid[src] {
		st.Valid[dst] = st.Layout.metadata[dst]
		return
	}
	st.SetValid(dst)
	st.copyFields(dst, src)
}

// copyFields copies the fields of a header to another header of the same type.
func (st *State) copyFields(dst, src int) {
	d, s := &st.Layout.Headers[dst], &st.Layout.Headers[src]
	copy(st.Lanes[d.Base:d.Base+d.Type.Lanes], st.Lanes[s.Base:s.Base+s.Type.Lanes])
	if d.Type.hasVarbit {
		st.Varbits[dst] = append(st.Varbits[dst][:0], st.Varbits[src]...)
	}
}

// MoveHeader does what AssignHeader does, for shifting a stack. It copies the fields of src even if
// src is invalid.
func (st *State) MoveHeader(dst, src int) {
	st.Valid[dst] = st.Valid[src]
	st.copyFields(dst, src)
}

// AssignUnion copies the members of a union to the members of another union. The unions are given
// by their headers.
func (st *State) AssignUnion(dst, src []int) {
	for i := range min(len(dst), len(src)) {
		st.AssignHeader(dst[i], src[i])
	}
}

// EqualHeaders reports whether two headers of the same type are both valid and have equal fields.
func (st *State) EqualHeaders(x, y int) bool {
	if x < 0 || y < 0 || !st.Valid[x] || !st.Valid[y] {
		return false
	}
	hx, hy := &st.Layout.Headers[x], &st.Layout.Headers[y]
	return slices.Equal(st.Lanes[hx.Base:hx.Base+hx.Type.Lanes],
		st.Lanes[hy.Base:hy.Base+hy.Type.Lanes]) &&
		string(st.Varbits[x]) == string(st.Varbits[y])
}

// WriteHeader writes a header to b in wire format, and returns its size. b must be large enough.
func (st *State) WriteHeader(b []byte, h int) int {
	hl := &st.Layout.Headers[h]
	lanes := st.Lanes[hl.Base : hl.Base+hl.Type.Lanes]
	if !hl.Type.hasVarbit {
		WriteFields(b, lanes, hl.Type.Wire)
		return hl.Type.FixedBits / 8
	}
	head := hl.Type.HeadBits / 8
	WriteFields(b, lanes, hl.Type.Wire)
	n := copy(b[head:], st.Varbits[h])
	WriteFields(b[head+n:], lanes, hl.Type.AfterVarbit)
	return hl.Type.FixedBits/8 + n
}
