package runtime

// slots hands out places in an array that packets read through a word that points at them. A place
// that is given back may still be read by packets that have seen the word before; it is handed out
// again only after all of those are gone.
type slots struct {
	free, gone []int
	next, size int
}

// take returns a free place. It waits for packets in flight where only places that were given back
// are left; ok is false if there is none.
func (s *slots) take() (int, bool) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, true
	}
	if s.next < s.size {
		s.next++
		return s.next - 1, true
	}
	if len(s.gone) == 0 {
		return 0, false
	}
	WaitForPackets()
	s.free, s.gone = s.gone, nil
	return s.take()
}

func (s *slots) give(i int) { s.gone = append(s.gone, i) }

// extents hands out runs of places one after the other, as slots does single ones: the replicas of
// a group.
type extents struct {
	size int
	used map[int]int // start → length
	gone map[int]int
}

func newExtents(size int) *extents {
	return &extents{size: size, used: map[int]int{}, gone: map[int]int{}}
}

func (r *extents) take(n int) (int, bool) {
	if at, ok := r.fit(n); ok {
		r.used[at] = n
		return at, true
	}
	if len(r.gone) == 0 {
		return 0, false
	}
	WaitForPackets()
	clear(r.gone)
	return r.take(n)
}

// fit finds the first gap of n.
func (r *extents) fit(n int) (int, bool) {
	at := 0
	for moved := true; moved; {
		moved = false
		for _, m := range []map[int]int{r.used, r.gone} {
			for from, length := range m {
				if at < from+length && from < at+n {
					at, moved = from+length, true
				}
			}
		}
	}
	return at, at+n <= r.size
}

func (r *extents) free(at int) {
	r.gone[at] = r.used[at]
	delete(r.used, at)
}
