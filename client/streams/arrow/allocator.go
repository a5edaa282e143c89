package streamsarrow

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
)

// Allocator is an Arrow allocator whose memory is in files that the node holds. So batches that
// builders make in this memory are shared without a copy. It is safe for concurrent use.
//
// When a batch is appended, each file is sealed whose remaining allocations all belong to the
// batch. If a file has other allocations, which may still be written to, the batch's buffers in
// this file are copied. So use an allocator only for the builders of one batch, and allocate
// nothing else with it until the batch is appended. Or release the other builders before. If an
// allocation grows, its old space in the file may stay unused, so call the builder's Reserve.
type Allocator struct {
	files *Files
	each  int

	mu     sync.Mutex
	open   []*chunk
	all    []*chunk // sorted by address; includes sealed files
	closed bool

	elsewhere atomic.Int64
}

// chunk is a file in which an Allocator allocates.
type chunk struct {
	draft  *Draft
	memory []byte
	free   []span
	used   map[int]int // maps the offset of each allocation to its length
	sealed *Mapped     // nil if the file is not sealed; has one reference for each entry of used
	broken bool        // the file is read-only, but could not be sealed
}

// writable reports whether the program may still write to the chunk.
func (c *chunk) writable() bool { return c.sealed == nil && !c.broken }

type span struct{ at, size int }

// Allocator makes an allocator. Each of its files has the given number of bytes, or the size of a
// larger single allocation; so choose about the size of a batch. 0 means 1 MiB.
func (f *Files) Allocator(bytes int) *Allocator {
	if bytes <= 0 {
		bytes = 1 << 20
	}
	a := &Allocator{files: f, each: rounded(bytes)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allocators[a] = struct{}{}
	return a
}

// Elsewhere returns the number of bytes that were allocated in the program's own memory because no
// file could be made. Such memory is copied when a batch is sent.
func (a *Allocator) Elsewhere() int64 { return a.elsewhere.Load() }

// Close releases the files that have no allocations. Each other file is released when its last
// allocation is freed.
func (a *Allocator) Close() {
	a.files.mu.Lock()
	delete(a.files.allocators, a)
	a.files.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range slices.Clone(a.open) {
		a.discardEmpty(c)
	}
}

// Allocate implements memory.Allocator.
func (a *Allocator) Allocate(size int) []byte {
	if size == 0 {
		return []byte{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allocate(size)
}

func (a *Allocator) allocate(size int) []byte {
	for _, c := range a.open {
		if c.draft.mapped.conn.ended() { // the node no longer holds the file
			continue
		}
		if b := c.take(size); b != nil {
			return b
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.files.cfg.Timeout)
	defer cancel()
	var d *Draft
	var err error
	if !a.closed {
		d, err = a.files.Make(ctx, max(a.each, rounded(size)))
	}
	if d == nil || err != nil {
		// the allocation fails over to the program's memory, because an Allocator cannot return an
		// error
		a.elsewhere.Add(int64(size))
		return make([]byte, size)
	}
	c := &chunk{draft: d, memory: d.Memory, free: []span{{0, len(d.Memory)}}, used: map[int]int{}}
	a.open = append(a.open, c)
	at, _ := slices.BinarySearchFunc(a.all, address(c.memory), func(c *chunk, at uintptr) int {
		if address(c.memory) < at {
			return -1
		}
		return 1
	})
	a.all = slices.Insert(a.all, at, c)
	return c.take(size)
}

// take allocates in the first free space that is large enough. It returns nil if there is none.
func (c *chunk) take(size int) []byte {
	need := rounded(size)
	for i := range c.free {
		s := &c.free[i]
		if s.size < need {
			continue
		}
		at := s.at
		if s.at, s.size = s.at+need, s.size-need; s.size == 0 {
			c.free = slices.Delete(c.free, i, i+1)
		}
		c.used[at] = need
		return c.memory[at : at+size : at+need]
	}
	return nil
}

// give frees the allocation at an offset. It fills the space with zeros, so that later builders,
// and other programs that map the file, find no old data.
func (c *chunk) give(at, size int) {
	clear(c.memory[at : at+size])
	i, _ := slices.BinarySearchFunc(c.free, at, func(s span, at int) int { return s.at - at })
	c.free = slices.Insert(c.free, i, span{at, size})
	if i+1 < len(c.free) && at+size == c.free[i+1].at {
		c.free[i].size += c.free[i+1].size
		c.free = slices.Delete(c.free, i+1, i+2)
	}
	if i > 0 && c.free[i-1].at+c.free[i-1].size == at {
		c.free[i-1].size += c.free[i].size
		c.free = slices.Delete(c.free, i, i+1)
	}
}

// grow extends the allocation at an offset in place, if possible.
func (c *chunk) grow(at, need int) bool {
	end := at + c.used[at]
	more := need - c.used[at]
	i, ok := slices.BinarySearchFunc(c.free, end, func(s span, at int) int { return s.at - at })
	if !ok || c.free[i].size < more {
		return false
	}
	if c.free[i].at, c.free[i].size = end+more, c.free[i].size-more; c.free[i].size == 0 {
		c.free = slices.Delete(c.free, i, i+1)
	}
	c.used[at] = need
	return true
}

// of returns the chunk that contains b, and the offset of b in the chunk. It returns nil if no
// chunk contains b.
func (a *Allocator) of(b []byte) (*chunk, int) {
	at := address(b)
	i, _ := slices.BinarySearchFunc(a.all, at, func(c *chunk, at uintptr) int {
		if address(c.memory) <= at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return nil, 0
	}
	c := a.all[i-1]
	if from := at - address(c.memory); from < uintptr(len(c.memory)) {
		return c, int(from)
	}
	return nil, 0
}

// Reallocate implements memory.Allocator.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if cap(b) == 0 {
		return a.Allocate(size)
	}
	a.mu.Lock()
	c, at := a.of(b)
	if c != nil && c.used[at] >= rounded(size) && size > 0 {
		a.mu.Unlock()
		if c.writable() && size > len(b) {
			clear(b[len(b):size])
		}
		return b[:size]
	}
	if c != nil && c.writable() && size > 0 && c.grow(at, rounded(size)) {
		defer a.mu.Unlock()
		return c.memory[at : at+size : at+rounded(size)]
	}
	a.mu.Unlock()
	made := a.Allocate(size)
	copy(made, b)
	a.Free(b)
	return made
}

// Free implements memory.Allocator.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	a.mu.Lock()
	c, at := a.of(b)
	if c == nil {
		a.mu.Unlock()
		return
	}
	size, ok := c.used[at]
	if !ok {
		a.mu.Unlock()
		panic("what was not allocated, or was freed before, is freed")
	}
	delete(c.used, at)
	m := c.sealed
	if m == nil {
		if !c.broken {
			c.give(at, size)
		}
		if a.closed || c.broken {
			a.discardEmpty(c)
		}
	} else if len(c.used) == 0 {
		a.forget(c)
	}
	a.mu.Unlock()
	if m != nil {
		m.Release()
	}
}

// discardEmpty discards a file if it has no allocations. The caller holds a.mu.
func (a *Allocator) discardEmpty(c *chunk) {
	if len(c.used) == 0 {
		a.forget(c)
		c.draft.Discard()
	}
}

func (a *Allocator) forget(c *chunk) {
	same := func(o *chunk) bool { return o == c }
	a.open = slices.DeleteFunc(a.open, same)
	a.all = slices.DeleteFunc(a.all, same)
}

// sealFor seals the allocators' files whose allocations all belong to the batch, so that the
// batch's record can refer to these files.
func (f *Files) sealFor(ctx context.Context, batch arrow.RecordBatch) {
	f.mu.Lock()
	all := make([]*Allocator, 0, len(f.allocators))
	for a := range f.allocators {
		all = append(all, a)
	}
	f.mu.Unlock()
	if len(all) == 0 {
		return
	}
	var buffers [][]byte
	for _, column := range batch.Columns() {
		buffers = appendBuffers(buffers, column.Data())
	}
	for _, a := range all {
		a.sealFor(ctx, buffers)
	}
}

func appendBuffers(to [][]byte, a arrow.ArrayData) [][]byte {
	for _, b := range a.Buffers() {
		if len(bytesOf(b)) > 0 {
			to = append(to, b.Bytes())
		}
	}
	for _, child := range a.Children() {
		to = appendBuffers(to, child)
	}
	if _, ok := storage(a.DataType()).(*arrow.DictionaryType); ok {
		if d := a.Dictionary(); d.Len() > 0 {
			to = appendBuffers(to, d)
		}
	}
	return to
}

func (a *Allocator) sealFor(ctx context.Context, buffers [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := map[*chunk]map[int]bool{}
	for _, b := range buffers {
		c, at := a.of(b)
		if c == nil || c.sealed != nil {
			continue
		}
		for begin, size := range c.used {
			if begin <= at && at < begin+size {
				if has[c] == nil {
					has[c] = map[int]bool{}
				}
				has[c][begin] = true
			}
		}
	}
	for c, blocks := range has {
		if len(blocks) < len(c.used) {
			continue // Other allocations in the chunk may still be written to.
		}
		m, err := c.draft.Seal(ctx, "")
		a.open = slices.DeleteFunc(a.open, func(o *chunk) bool { return o == c })
		if err != nil { // The batch's buffers in this file will be copied.
			c.broken = true
			continue
		}
		for range len(c.used) - 1 {
			m.Retain()
		}
		c.sealed = m
	}
}
