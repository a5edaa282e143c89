package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// registerArray is a register: its cells one after the other, each in as many lanes as it needs.
type registerArray struct {
	size, width, lanes int
	signed             bool
	cells              []uint64
}

// counterArray is a counter array.
type counterArray struct{ cells []target.CounterData }

// count counts a packet of so many bytes in the cell at i, if there is one.
func (a *counterArray) count(i uint64, bytes int) {
	if i < uint64(len(a.cells)) {
		a.cells[i].Packets++
		a.cells[i].Bytes += uint64(bytes)
	}
}

func newRegisterArray(r *bmv2json.Register) *registerArray {
	return &registerArray{size: r.Size, width: r.Width, lanes: lanesOf(r.Width), signed: r.Signed}
}

// allocate makes room for the cells.
func (r *registerArray) allocate() { r.cells = make([]uint64, r.size*r.lanes) }

func (a *counterArray) allocate(size int) { a.cells = make([]target.CounterData, size) }

func (r *registerArray) value(b []byte) ([]uint64, error) {
	if err := checkBytes(b, r.width); err != nil {
		return nil, err
	}
	lanes := make([]uint64, r.lanes)
	lanesFromBytes(lanes, b)
	return lanes, nil
}
