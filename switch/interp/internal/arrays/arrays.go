package arrays

import (
	"slices"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// Register is a register array. Its cells follow each other, each in Lanes lanes.
type Register struct {
	Size, Width, Lanes int
	Signed             bool
	Cells              []uint64
}

// Counter is a counter array.
type Counter struct{ cells []target.CounterData }

// Count counts a packet of this many bytes in the cell at i, if there is one.
func (a *Counter) Count(i uint64, bytes int) {
	if i < uint64(len(a.cells)) {
		a.cells[i].Packets++
		a.cells[i].Bytes += uint64(bytes)
	}
}

// NewRegister makes a register whose cells have no memory yet.
func NewRegister(r *bmv2json.Register) *Register {
	return &Register{Size: r.Size, Width: r.Width, Lanes: wideint.Lanes(r.Width), Signed: r.Signed}
}

// Allocate makes room for the cells.
func (r *Register) Allocate() { r.Cells = make([]uint64, r.Size*r.Lanes) }

// Allocate makes room for the cells.
func (a *Counter) Allocate(size int) { a.cells = make([]target.CounterData, size) }

// Parse turns the bytes of a value, big endian, into the lanes of a cell.
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

// AppendCells appends some cells to a slice, each big endian in (Width+7)/8 bytes. packets is the
// mutex that is held while a packet is in the program.
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

// Fill sets all cells.
func (r *Register) Fill(value []uint64, packets *sync.Mutex) {
	for i := 0; i < r.Size; i += batch {
		packets.Lock()
		for j := i; j < min(i+batch, r.Size); j++ {
			r.Set(j, value)
		}
		packets.Unlock()
	}
}

// Cell is the cell at i.
func (a *Counter) Cell(i int) *target.CounterData { return &a.cells[i] }
