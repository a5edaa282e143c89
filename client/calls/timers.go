package calls

import "container/heap"

// timerHeap orders the calls with a timer: the next one due comes first, and of two that are due at
// the same time, the one that was started first.
type timerHeap []*call

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].wake != h[j].wake {
		return h[i].wake < h[j].wake
	}
	return h[i].id < h[j].id
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i, j
}

func (h *timerHeap) Push(x any) {
	c := x.(*call)
	c.timer = len(*h)
	*h = append(*h, c)
}

func (h *timerHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.timer = -1
	return c
}

// set puts the call at the place for its wake time.
func (h *timerHeap) set(c *call) {
	if c.timer < 0 {
		heap.Push(h, c)
		return
	}
	heap.Fix(h, c.timer)
}

func (h *timerHeap) remove(c *call) {
	if c.timer >= 0 {
		heap.Remove(h, c.timer)
	}
}
