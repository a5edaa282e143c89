package runtime

// slots hands out places in an array that packets read through a word that points at them. A freed
// place may still be read by packets that have seen the word before; it is handed out again only
// after all of those are gone.
type slots struct {
	free, released []int
	next, size     int
}

// allocate returns a free place. If only recently freed places are left, it waits for packets in
// flight; ok is false if there is none.
func (s *slots) allocate() (int, bool) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, true
	}
	if s.next < s.size {
		s.next++
		return s.next - 1, true
	}
	if len(s.released) == 0 {
		return 0, false
	}
	WaitForPackets()
	s.free, s.released = s.released, nil
	return s.allocate()
}

func (s *slots) release(i int) { s.released = append(s.released, i) }

// extents hands out runs of consecutive places, as slots does for single places: the replicas of a
// group.
type extents struct {
	size     int
	used     map[int]int // start → length
	released map[int]int
}

func newExtents(size int) *extents {
	return &extents{size: size, used: map[int]int{}, released: map[int]int{}}
}

func (r *extents) allocate(n int) (int, bool) {
	if at, ok := r.fit(n); ok {
		r.used[at] = n
		return at, true
	}
	if len(r.released) == 0 {
		return 0, false
	}
	WaitForPackets()
	clear(r.released)
	return r.allocate(n)
}

// fit finds the first gap of n.
func (r *extents) fit(n int) (int, bool) {
	at := 0
	for moved := true; moved; {
		moved = false
		for _, m := range []map[int]int{r.used, r.released} {
			for from, length := range m {
				if at < from+length && from < at+n {
					at, moved = from+length, true
				}
			}
		}
	}
	return at, at+n <= r.size
}

func (r *extents) release(at int) {
	r.released[at] = r.used[at]
	delete(r.used, at)
}
