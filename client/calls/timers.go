package calls

import "container/heap"

// timerHeap orders the calls that have a timer by the time at which the timer fires. Calls with
// equal times are ordered by their start.
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

// set moves the call to the position in the heap that its wake time requires.
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
