package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// This is the layout of a cursor page, and of each cell of the page.
const (
	atCells   = 8
	atBell    = 64
	atWaiting = 68
	atStopped = 72
	atCell    = 128
	cellBytes = 64

	atHeld  = 0
	atNext  = 8
	atWant  = 16
	atFreed = 24
)

// Cursor is the memory page of a subscription, with a cell for each of its partitions. Only the
// consumer and the broker map the page, and both write to it. What the consumer writes there
// affects only this consumer.
type Cursor struct {
	b     []byte
	cells int
}

// FormatCursor makes a cursor page in memory that is filled with zeros.
func FormatCursor(b []byte, cells int) (*Cursor, error) {
	if len(b) != CursorBytes || cells < 1 || cells > MaxPartitions {
		return nil, fmt.Errorf("a cursor page has %d bytes and up to %d cells, not %d and %d", CursorBytes, MaxPartitions, len(b), cells)
	}
	binary.LittleEndian.PutUint32(b[atCells:], uint32(cells))
	copy(b, cursorMagic)
	return &Cursor{b, cells}, nil
}

// OpenCursor checks memory that should be a cursor page.
func OpenCursor(b []byte) (*Cursor, error) {
	if len(b) != CursorBytes || string(b[:len(cursorMagic)]) != cursorMagic {
		return nil, errors.New("this is no cursor page")
	}
	cells := int(binary.LittleEndian.Uint32(b[atCells:]))
	if cells < 1 || cells > MaxPartitions {
		return nil, fmt.Errorf("a cursor page of %d cells", cells)
	}
	return &Cursor{b, cells}, nil
}

// Cells returns the number of the subscription's partitions.
func (c *Cursor) Cells() int { return c.cells }

// Bell returns a futex. The broker increments it, and wakes its waiter if Waiting is not 0.
func (c *Cursor) Bell() *atomic.Uint32 { return half(c.b, atBell) }

// Waiting returns a word that the consumer writes. The consumer sets it to 1 before it checks for
// records a last time and then sleeps at the bell.
func (c *Cursor) Waiting() *atomic.Uint32 { return half(c.b, atWaiting) }

// Stopped returns a word that the broker writes. It is 1 when the subscription has ended. The
// reason is in the server's answer.
func (c *Cursor) Stopped() *atomic.Uint32 { return half(c.b, atStopped) }

func (c *Cursor) cell(i int) []byte { return c.b[atCell+i*cellBytes:][:cellBytes:cellBytes] }

// Held returns a word that the consumer writes. The consumer has released all objects with smaller
// numbers.
func (c *Cursor) Held(i int) *atomic.Uint64 { return word(c.cell(i), atHeld) }

// Next returns a word that the consumer writes. The consumer has finished with all records with
// smaller offsets.
func (c *Cursor) Next(i int) *atomic.Uint64 { return word(c.cell(i), atNext) }

// Want returns a word that the broker writes. The broker waits until the consumer holds no object
// with a smaller number. The value 0 means that the broker does not wait.
func (c *Cursor) Want(i int) *atomic.Uint64 { return word(c.cell(i), atWant) }

// Freed returns a futex. When the consumer has released the objects that the broker wants, it
// increments Freed and wakes the waiter.
func (c *Cursor) Freed(i int) *atomic.Uint32 { return half(c.cell(i), atFreed) }

// LetGo publishes the consumer's position. The consumer still holds the objects from number held
// on, and has finished with the records before offset next. If LetGo returns true, the broker is
// waiting for this, and the caller must wake it at Freed.
func (c *Cursor) LetGo(i int, held, next uint64) (wake bool) {
	c.Next(i).Store(next)
	c.Held(i).Store(held)
	if want := c.Want(i).Load(); want == 0 || held < want || !c.Want(i).CompareAndSwap(want, 0) {
		return false
	}
	c.Freed(i).Add(1)
	return true
}
