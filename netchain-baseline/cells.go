package netchain

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// cell is what a switch holds for a key.
type cell struct {
	seq     Seq
	present bool
	value   [ValueBytes]byte
}

// What a switch holds the controller reads and writes as a client would, by packets that it sends
// through the switch: registers cannot be read over P4Runtime on every target, and a write with a
// number takes care of itself where the switch has a newer one.

// fetch reads keys from a switch.
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

// put sends what is to be held for a key. What comes of it is for fetch to find out.
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

// steps are the numbers that a switch takes one after the other for newer, from the one that it has
// to the one that it is to have. Of 16 bits a number is newer only if it is less than half the
// circle ahead.
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
	copied = 256 // keys at a time
	copies = 20  // so often a difference is sent
)

// copyOnce has a switch hold what another one does, or something older where that changes
// meanwhile.
func (c *Controller) copyOnce(ctx context.Context, from, to *topology.Switch, keys []uint32) error {
	return c.each(keys, func(keys []uint32) error {
		_, err := c.copySome(ctx, from, to, keys)
		return err
	})
}

// copyAll has a switch hold what another one does, which does not change meanwhile.
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

// copySome sends what is different.
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
