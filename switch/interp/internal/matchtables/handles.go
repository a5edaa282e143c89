package matchtables

import "container/heap"

// handles allocates the handles of a table's entries as BMv2 does. A handle is the lowest free
// number. The bits from 24 on count how often the number was freed before.
type handles struct {
	free     freeHandles
	versions []uint8
}

type freeHandles []int

func (f freeHandles) Len() int           { return len(f) }
func (f freeHandles) Less(i, j int) bool { return f[i] < f[j] }
func (f freeHandles) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *freeHandles) Push(x any)        { *f = append(*f, x.(int)) }
func (f *freeHandles) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

const handleIndex = 1<<24 - 1

func (h *handles) take() int {
	if len(h.free) == 0 {
		h.versions = append(h.versions, 0)
		return len(h.versions) - 1
	}
	i := heap.Pop(&h.free).(int)
	return int(h.versions[i])<<24 | i
}

func (h *handles) release(handle int) {
	i := handle & handleIndex
	h.versions[i]++
	heap.Push(&h.free, i)
}
