package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// Layout of a cursor page, and of each of its cells.
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

// Cursor is a subscription's page, with a cell for each of its partitions. Only its consumer and
// the broker map it, and both write to it. What a consumer writes there affects only this consumer.
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

// Bell is a futex: the broker adds to it, and wakes its waiter if Waiting is not 0.
func (c *Cursor) Bell() *atomic.Uint32 { return half(c.b, atBell) }

// Waiting is written by the consumer: 1 before it checks for the last time and sleeps at the bell.
func (c *Cursor) Waiting() *atomic.Uint32 { return half(c.b, atWaiting) }

// Stopped is written by the broker: 1 when the subscription has ended. The server's answer has the
// reason.
func (c *Cursor) Stopped() *atomic.Uint32 { return half(c.b, atStopped) }

func (c *Cursor) cell(i int) []byte { return c.b[atCell+i*cellBytes:][:cellBytes:cellBytes] }

// Held is written by the consumer, which has released all objects with smaller numbers.
func (c *Cursor) Held(i int) *atomic.Uint64 { return word(c.cell(i), atHeld) }

// Next is written by the consumer, which is done with all records with smaller offsets.
func (c *Cursor) Next(i int) *atomic.Uint64 { return word(c.cell(i), atNext) }

// Want is written by the broker, which waits until the consumer holds no object with a smaller
// number. 0: the broker does not wait.
func (c *Cursor) Want(i int) *atomic.Uint64 { return word(c.cell(i), atWant) }

// Freed is a futex: when the consumer has released what the writer wants, it adds to Freed and
// wakes the waiter.
func (c *Cursor) Freed(i int) *atomic.Uint32 { return half(c.cell(i), atFreed) }

// LetGo is for the consumer. It publishes that the consumer holds objects from a number on, and is
// done with the records before an offset. If it returns true, the broker waits for this, and the
// caller must wake the broker at Freed.
func (c *Cursor) LetGo(i int, held, next uint64) (wake bool) {
	c.Next(i).Store(next)
	c.Held(i).Store(held)
	if want := c.Want(i).Load(); want == 0 || held < want || !c.Want(i).CompareAndSwap(want, 0) {
		return false
	}
	c.Freed(i).Add(1)
	return true
}
