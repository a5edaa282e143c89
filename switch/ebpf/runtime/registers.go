package runtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// move copies cells between the state and data. The first CellsHeader bytes of data are space for
// the header of the cells program.
func (p *Pipeline) move(off int, data []byte, write bool) error {
	n := len(data) - compile.CellsHeader
	binary.NativeEndian.PutUint32(data, uint32(off))
	binary.NativeEndian.PutUint32(data[4:], uint32(n))
	data[8] = 0
	if write {
		data[8] = 1
	}
	out := data
	if write {
		out = nil
	}
	ret, err := p.cells.Run(&ebpf.RunOptions{Data: data, DataOut: out})
	if err != nil {
		return fmt.Errorf("moving cells of a register: %w", err)
	}
	if ret != 0 {
		return errLocked
	}
	return nil
}

// errLocked is the error if a packet has held the registers for longer than any packet needs. The
// CPU of that packet is not running.
var errLocked = errors.New("the registers stayed locked")

// Barrier first waits for barrierGrace, which is longer than a packet takes unless the packet waits
// for a lock. Then it checks for barrierLooks whether the registers are free. Finally it takes the
// lock itself, and gives up after barrierPatience.
const (
	barrierGrace    = 50 * time.Microsecond
	barrierLooks    = time.Millisecond
	barrierPatience = time.Second
)

// Barrier implements [target.Pipeline]. compile/locking/lock.go describes it.
func (p *Pipeline) Barrier() error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	if len(p.Prog.Registers) == 0 {
		return nil // there is no lock that a packet could hold
	}
	epoch := atomic.AddUint64(p.State.word(p.Epoch), 1)
	for began := time.Now(); time.Since(began) < barrierGrace; {
		runtime.Gosched()
	}
	for oldest := p.State.word(p.Epoch + memory.OldestEpoch); ; {
		now := atomic.LoadUint64(oldest)
		if now >= epoch || atomic.CompareAndSwapUint64(oldest, now, epoch) {
			break
		}
	}
	// It is enough to see a lock free once. A packet that takes the lock later sees the oldest
	// permitted epoch.
	began := time.Now()
	locks := p.Locks()
	for time.Since(began) < barrierLooks {
		for len(locks) > 0 && p.State.Load(locks[0]) == 0 {
			locks = locks[1:]
		}
		if len(locks) == 0 {
			return nil
		}
		runtime.Gosched()
	}
	data := make([]byte, compile.CellsHeader+8)
	for {
		err := p.move(p.Epoch, data, false) // only holding the lock matters, not the data
		if !errors.Is(err, errLocked) || time.Since(began) > barrierPatience {
			return err
		}
	}
}

func (p *Pipeline) register(name string, first, count int) (*bmv2json.Register, memory.ArrayPlan,
	error) {
	r := p.Prog.Register(name)
	if r == nil {
		return nil, memory.ArrayPlan{}, fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	if first < 0 || count < 0 || count > r.Size || first > r.Size-count {
		return nil, memory.ArrayPlan{}, fmt.Errorf("register %q: cells %d to %d of %d: %w", name,
			first, first+count-1, r.Size, target.ErrOutOfRange)
	}
	return r, p.Registers[r.Index], nil
}

// StatePart returns the place of a register cell in the state. The cell must have at most 64 bits.
func (p *Pipeline) StatePart(name string, index int) (emit.StatePart, error) {
	_, a, err := p.register(name, index, 1)
	if err == nil && a.Cell > 8 {
		err = fmt.Errorf("register %q has cells of %d bytes, and not of at most 8: %w", name, a.Cell, target.ErrInvalid)
	}
	return emit.StatePart{Off: a.At(index), Size: a.Cell}, err
}

// encodeCell converts a value to a cell: a number in host order, or a padded big-endian string.
func encodeCell(cell, value []byte) {
	if len(cell) > 8 || len(cell) == 8 && len(value) > 8 {
		clear(cell)
		copy(cell[len(cell)-len(value):], value)
		return
	}
	var b [8]byte
	copy(b[8-len(value):], value)
	v := binary.BigEndian.Uint64(b[:])
	switch len(cell) {
	case 1:
		cell[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(cell, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(cell, uint32(v))
	default:
		binary.NativeEndian.PutUint64(cell, v)
	}
}

// appendCell appends the value in a cell to to. It is the inverse of encodeCell.
func appendCell(to, cell []byte, width int) []byte {
	n := (width + 7) / 8
	if ir.Wide(width) {
		return append(to, cell[len(cell)-n:]...)
	}
	var v uint64
	switch len(cell) {
	case 1:
		v = uint64(cell[0])
	case 2:
		v = uint64(binary.NativeEndian.Uint16(cell))
	case 4:
		v = uint64(binary.NativeEndian.Uint32(cell))
	default:
		v = binary.NativeEndian.Uint64(cell)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return append(to, b[8-n:]...)
}

// ReadRegister implements [target.Pipeline].
func (p *Pipeline) ReadRegister(name string, index int) ([]byte, error) {
	cells, err := p.ReadRegisters(name, index, 1)
	if err != nil {
		return nil, err
	}
	return cells[0], nil
}

// ReadRegisters implements [target.Pipeline].
func (p *Pipeline) ReadRegisters(name string, first, count int) ([][]byte, error) {
	// One slice for all cells is faster than allocating a slice for each cell.
	cells, err := p.AppendRegisters(nil, name, first, count)
	if err != nil {
		return nil, err
	}
	return target.SplitCells(cells, count), nil
}

// AppendRegisters implements [target.Pipeline].
func (p *Pipeline) AppendRegisters(to []byte, name string, first, count int) ([]byte, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	r, a, err := p.register(name, first, count)
	if err != nil {
		return nil, err
	}
	to = slices.Grow(to, count*((r.Width+7)/8))
	each := (compile.CellsMax-a.Cell)/a.Stride + 1
	span := func(n int) int { return compile.CellsHeader + (n-1)*a.Stride + a.Cell }
	buffer := make([]byte, span(max(min(count, each), 1)))
	for count > 0 {
		n := min(count, each)
		data := buffer[:span(n)]
		if err := p.move(a.At(first), data, false); err != nil {
			return nil, fmt.Errorf("register %q: %w", name, err)
		}
		for i := range n {
			at := compile.CellsHeader + i*a.Stride
			to = appendCell(to, data[at:at+a.Cell], r.Width)
		}
		first, count = first+n, count-n
	}
	return to, nil
}

// WriteRegister implements [target.Pipeline].
func (p *Pipeline) WriteRegister(name string, index int, value []byte) error {
	return p.writeCells(name, index, 1, value)
}

// FillRegister implements [target.Pipeline].
func (p *Pipeline) FillRegister(name string, value []byte) error {
	r := p.Prog.Register(name)
	if r == nil {
		return fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	return p.writeCells(name, 0, r.Size, value)
}

func (p *Pipeline) writeCells(name string, first, count int, value []byte) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	r, a, err := p.register(name, first, count)
	if err != nil {
		return err
	}
	if err := checkBytes(value, r.Width); err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	each := compile.CellsMax / a.Cell
	if a.Stride != a.Cell { // other registers' cells are in between
		each = 1
	}
	data := make([]byte, compile.CellsHeader+min(count, each)*a.Cell)
	for i := compile.CellsHeader; i < len(data); i += a.Cell {
		encodeCell(data[i:i+a.Cell], value)
	}
	for count > 0 {
		n := min(count, each)
		if err := p.move(a.At(first), data[:compile.CellsHeader+n*a.Cell],
			true); err != nil {
			return fmt.Errorf("register %q: %w", name, err)
		}
		first, count = first+n, count-n
	}
	return nil
}
