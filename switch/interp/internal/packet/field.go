package packet

// Field is one of them; a program may lack those that are not required.
type Field struct {
	Lane int
	Mask uint64 // 0: the program has no such field
}

func (f Field) Set(st *State, v uint64) {
	if f.Mask != 0 {
		st.Lanes[f.Lane] = v & f.Mask
	}
}

func (f Field) Get(st *State) uint64 {
	if f.Mask == 0 {
		return 0
	}
	return st.Lanes[f.Lane]
}
