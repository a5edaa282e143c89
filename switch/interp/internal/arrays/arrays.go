package arrays

import (
	"slices"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// Register is a register array. Its cells follow each other in memory, and each cell has Lanes
// lanes.
type Register struct {
	Size, Width, Lanes int
	Signed             bool
	Cells              []uint64
}

// Counter is a counter array.
type Counter struct{ cells []target.CounterData }

// Count adds a packet of this many bytes to the cell at i, if the cell exists.
func (a *Counter) Count(i uint64, bytes int) {
	if i < uint64(len(a.cells)) {
		a.cells[i].Packets++
		a.cells[i].Bytes += uint64(bytes)
	}
}

// NewRegister creates a register array. Allocate must allocate its cells.
func NewRegister(r *bmv2json.Register) *Register {
	return &Register{Size: r.Size, Width: r.Width, Lanes: wideint.Lanes(r.Width), Signed: r.Signed}
}

// Allocate allocates the cells of the array.
func (r *Register) Allocate() { r.Cells = make([]uint64, r.Size*r.Lanes) }

// Allocate allocates the cells of the array.
func (a *Counter) Allocate(size int) { a.cells = make([]target.CounterData, size) }

// Parse converts the big-endian bytes of a value to the lanes of a cell.
func (r *Register) Parse(b []byte) ([]uint64, error) {
	if err := wideint.CheckBytes(b, r.Width); err != nil {
		return nil, err
	}
	lanes := make([]uint64, r.Lanes)
	wideint.SetBytes(lanes, b)
	return lanes, nil
}

// batch is the number of cells that a call reads or writes while it holds the lock that makes
// packets wait.
const batch = 1024

// Set sets a cell.
func (r *Register) Set(index int, value []uint64) { copy(r.Cells[index*r.Lanes:], value) }

// AppendCells appends cells first to first+count-1 to a slice, each as (Width+7)/8 big-endian
// bytes. packets is the mutex that is held while a packet is in the program.
func (r *Register) AppendCells(to []byte, first, count int, packets *sync.Mutex) []byte {
	to = slices.Grow(to, count*((r.Width+7)/8))
	lanes := make([]uint64, 0, min(count, batch)*r.Lanes)
	for i := 0; i < count; i += batch {
		n := min(batch, count-i)
		packets.Lock()
		lanes = append(lanes[:0], r.Cells[(first+i)*r.Lanes:(first+i+n)*r.Lanes]...)
		packets.Unlock()
		for j := range n {
			to = wideint.AppendBytes(to, lanes[j*r.Lanes:(j+1)*r.Lanes], r.Width)
		}
	}
	return to
}

// Fill sets all cells to value. packets is the mutex that is held while a packet is in the program.
func (r *Register) Fill(value []uint64, packets *sync.Mutex) {
	for i := 0; i < r.Size; i += batch {
		packets.Lock()
		for j := i; j < min(i+batch, r.Size); j++ {
			r.Set(j, value)
		}
		packets.Unlock()
	}
}

// Cell returns the cell at i.
func (a *Counter) Cell(i int) *target.CounterData { return &a.cells[i] }
