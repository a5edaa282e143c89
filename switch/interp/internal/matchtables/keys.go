package matchtables

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// packKeys lays out the keys in as few lanes as possible. Narrow keys share a lane. A range has its
// own lane, because it is compared as a number.
func (t *Table) packKeys(lay *packet.Layout) {
	to, used := 0, 0 // the lane that is being filled, and the number of its bits in use
	fresh := func() {
		if used > 0 {
			to, used = to+1, 0
		}
	}
	for _, k := range t.Source.Keys {
		s := keySource{kind: k.Kind, lanes: wideint.Lanes(k.Width), header: -1, valid: -1, width: k.Width}
		if k.Field.IsValidity() {
			s.valid = k.Field.Header.Index
		} else {
			s.lane = lay.LaneOf(k.Field)
			if !k.Field.Header.Metadata {
				s.header = k.Field.Header.Index
			}
		}
		if k.Mask != nil {
			s.mask = make([]uint64, s.lanes)
			wideint.SetBytes(s.mask, k.Mask)
		}
		alone := k.Kind == bmv2json.MatchRange || k.Width > 64
		if k.Kind == bmv2json.MatchRange && k.Width > 64 {
			refusal.Panic(t.Source.Path, "key %q: a range over %d bits", k.Name, k.Width)
		}
		if alone || used+k.Width > 64 {
			fresh()
		}
		s.to, s.shift = to, used
		if alone {
			to += s.lanes
		} else {
			used += k.Width
		}
		t.keys = append(t.keys, s)
	}
	fresh()
	t.lanes = to
	t.key = make([]uint64, to)
}

// lanesOfMatch returns the value of a match under its mask, and the mask. For a range it returns
// the two bounds.
func (k *keySource) lanesOfMatch(m target.FieldMatch) (value, mask []uint64, err error) {
	if k.kind == bmv2json.MatchValid {
		if len(m.Value) != 1 || m.Value[0] > 1 {
			return nil, nil, fmt.Errorf("a validity is one byte, 0 or 1: %w", target.ErrInvalid)
		}
		return []uint64{uint64(m.Value[0])}, []uint64{1}, nil
	}
	if err := wideint.CheckBytes(m.Value, k.width); err != nil {
		return nil, nil, err
	}
	value, mask = make([]uint64, k.lanes), make([]uint64, k.lanes)
	wideint.SetBytes(value, m.Value)
	switch k.kind {
	case bmv2json.MatchExact:
		for i := range mask {
			mask[i] = ^uint64(0)
		}
		mask[k.lanes-1] = wideint.TopMask(k.width)
		return value, mask, nil
	case bmv2json.MatchLPM:
		if m.PrefixLen < 0 || m.PrefixLen > k.width {
			return nil, nil, fmt.Errorf("a prefix of %d bits of %d: %w", m.PrefixLen, k.width,
				target.ErrInvalid)
		}
		for b := k.width - m.PrefixLen; b < k.width; b++ {
			mask[b>>6] |= 1 << (b & 63)
		}
	default:
		if err := wideint.CheckBytes(m.Mask, k.width); err != nil {
			return nil, nil, fmt.Errorf("mask: %w", err)
		}
		wideint.SetBytes(mask, m.Mask)
		if k.kind == bmv2json.MatchRange {
			if value[0] > mask[0] {
				return nil, nil, fmt.Errorf("the range from 0x%x to 0x%x is empty: %w", value[0],
					mask[0], target.ErrInvalid)
			}
			return value, mask, nil
		}
	}
	for i := range value {
		value[i] &= mask[i]
	}
	return value, mask, nil
}

// canonical returns the match in the form that the control plane reads back, in which masked bits
// are 0.
func (k *keySource) canonical(m target.FieldMatch, value, mask []uint64) target.FieldMatch {
	switch k.kind {
	case bmv2json.MatchValid:
		return target.FieldMatch{Value: slices.Clone(m.Value)}
	case bmv2json.MatchExact:
		return target.FieldMatch{Value: wideint.Bytes(value, k.width)}
	case bmv2json.MatchLPM:
		return target.FieldMatch{Value: wideint.Bytes(value, k.width), PrefixLen: m.PrefixLen}
	}
	return target.FieldMatch{Value: wideint.Bytes(value, k.width),
		Mask: wideint.Bytes(mask, k.width)}
}

// word returns a packet's key, if the table's keys have one lane.
func (t *Table) word(st *packet.State) (key uint64) {
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.Valid[k.valid] {
				key |= 1 << k.shift
			}
		case k.header >= 0 && !st.Valid[k.header]:
		case k.mask == nil:
			key |= st.Lanes[k.lane] << k.shift
		default:
			key |= st.Lanes[k.lane] & k.mask[0] << k.shift
		}
	}
	return key
}

// buildKey returns a packet's key. As in BMv2, a field of an invalid header counts as 0.
func (t *Table) buildKey(st *packet.State) []uint64 {
	key := t.key
	clear(key)
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.Valid[k.valid] {
				key[k.to] |= 1 << k.shift
			}
		case k.header >= 0 && !st.Valid[k.header]:
		case k.mask == nil && k.lanes == 1:
			key[k.to] |= st.Lanes[k.lane] << k.shift
		case k.mask == nil:
			copy(key[k.to:], st.Lanes[k.lane:k.lane+k.lanes])
		default:
			for j := range k.lanes {
				key[k.to+j] |= st.Lanes[k.lane+j] & k.mask[j] << k.shift
			}
		}
	}
	return key
}
