package packet

// Field is a metadata field of at most 64 bits that the engine reads or sets. A program may lack
// fields that the engine does not require.
type Field struct {
	Lane int
	Mask uint64 // 0 if the program has no such field
}

// Set sets the field, truncated to its width, if the program has the field.
func (f Field) Set(st *State, v uint64) {
	if f.Mask != 0 {
		st.Lanes[f.Lane] = v & f.Mask
	}
}

// Get returns the value of the field, or 0 if the program does not have it.
func (f Field) Get(st *State) uint64 {
	if f.Mask == 0 {
		return 0
	}
	return st.Lanes[f.Lane]
}
