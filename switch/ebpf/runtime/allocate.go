package runtime

// slots allocates elements of an array that packets read through a word that points at an element.
// Packets that have seen the word may still read a freed element. So slots allocates the element
// again only after all these packets have ended.
type slots struct {
	free, released []int
	next, size     int
}

// allocate returns a free element. If only recently freed elements are left, it waits for packets
// in flight. ok is false if there is no free element.
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

// extents allocates runs of consecutive elements, for example, for the replicas of a group. Like
// slots, it reuses a freed run only after packets in flight have ended.
type extents struct {
	size     int
	used     map[int]int // start of a run -> its length
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

// fit returns the start of the first gap of n elements.
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
