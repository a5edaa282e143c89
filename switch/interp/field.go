package interp

// stdField is one of them; a program may lack those that are not required.
type stdField struct {
	lane int
	mask uint64 // 0: the program has no such field
}

func (f stdField) set(st *state, v uint64) {
	if f.mask != 0 {
		st.w[f.lane] = v & f.mask
	}
}

func (f stdField) get(st *state) uint64 {
	if f.mask == 0 {
		return 0
	}
	return st.w[f.lane]
}
