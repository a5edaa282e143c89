package netchain

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// cell is the content of a switch's registers for one key.
type cell struct {
	seq     Seq
	present bool
	value   [ValueBytes]byte
}

// The controller reads and writes a switch's keys as a client does, with packets that it sends
// through the switch. It does not use P4Runtime for this, because not every target supports reading
// registers over P4Runtime. A switch drops a numbered write if its stored sequence number is newer.

// fetch reads the cells of keys from a switch.
func (c *Controller) fetch(ctx context.Context, from *topology.Switch, keys []uint32) ([]cell, error) {
	out := make([]outgoing, len(keys))
	for i, k := range keys {
		out[i] = outgoing{from.Name, self, &Packet{Op: Read, Key: k}}
	}
	answers, err := c.f.exchange(ctx, out)
	if err != nil {
		return nil, fmt.Errorf("reading keys from %s: %w", from.Name, err)
	}
	cells := make([]cell, len(keys))
	for i, a := range answers {
		cells[i] = cell{a.Seq, a.Status == OK, a.Value}
	}
	return cells, nil
}

// put returns the packets that change a key's cell from `is` to `want`. A later fetch shows whether
// they had an effect.
func put(to *topology.Switch, key uint32, is, want cell, seqBits int) (out []outgoing) {
	op := Write
	if !want.present {
		op = Delete
	}
	for _, seq := range steps(is.seq, want.seq, seqBits) {
		out = append(out, outgoing{to.Name, self, &Packet{Op: op, Status: numbered, Key: key, Seq: seq,
			Value: want.value}})
	}
	return out
}

// steps returns a series of sequence numbers that leads from the current number to the wanted
// number. The switch accepts each number as newer than the one before. A 16-bit number counts as
// newer only if it is less than 0x8000 ahead.
func steps(is, want Seq, seqBits int) (out []Seq) {
	if seqBits > 16 {
		return []Seq{want}
	}
	for at := uint16(is.Low); ; {
		if ahead := uint16(want.Low) - at; ahead != 0 && ahead < 0x8000 {
			return append(out, want)
		}
		at += 0x7fff
		out = append(out, Seq{Low: uint64(at)})
	}
}

const (
	copied = 256 // number of keys that are copied at a time
	copies = 20  // maximum number of attempts to remove all differences
)

// copyOnce copies keys from one switch to another. The copy may lack changes that happen during the
// call.
func (c *Controller) copyOnce(ctx context.Context, from, to *topology.Switch, keys []uint32) error {
	return c.each(keys, func(keys []uint32) error {
		_, err := c.copySome(ctx, from, to, keys)
		return err
	})
}

// copyAll copies keys from one switch to another until both have the same cells. The source must
// not change during the call.
func (c *Controller) copyAll(ctx context.Context, from, to *topology.Switch, keys []uint32) error {
	return c.each(keys, func(keys []uint32) error {
		for range copies {
			if different, err := c.copySome(ctx, from, to, keys); err != nil || different == 0 {
				return err
			}
		}
		return fmt.Errorf("%s does not come to hold what %s does", to.Name, from.Name)
	})
}

func (c *Controller) each(keys []uint32, f func([]uint32) error) error {
	for from := 0; from < len(keys); from += copied {
		if err := f(keys[from:min(from+copied, len(keys))]); err != nil {
			return err
		}
	}
	return nil
}

// copySome sends the cells that differ, once, and returns their number.
func (c *Controller) copySome(ctx context.Context, from, to *topology.Switch, keys []uint32) (different int,
	err error) {
	want, err := c.fetch(ctx, from, keys)
	if err != nil {
		return 0, err
	}
	is, err := c.fetch(ctx, to, keys)
	if err != nil {
		return 0, err
	}
	var out []outgoing
	for i, k := range keys {
		if is[i] != want[i] {
			different++
			out = append(out, put(to, k, is[i], want[i], c.o.SeqBits)...)
		}
	}
	return different, c.f.tell(ctx, out)
}
