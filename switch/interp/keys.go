package interp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// keySource is one key: which lanes it comes from, and where in the packed key it goes.
type keySource struct {
	kind   bmv2json.MatchKind
	lane   int
	lanes  int
	header int // must be valid, or the key is 0; -1 for metadata
	valid  int // a validity key: the header; -1 otherwise
	width  int
	to     int
	shift  int
	mask   []uint64 // the static mask, by lane; nil for none
}

// packKeys lays the keys out in as few lanes as they fit: narrow ones share a lane, a range has its
// own (it is compared as a number).
func (t *table) packKeys(lay *layout) {
	to, used := 0, 0 // the lane being filled and the bits of it that are taken
	fresh := func() {
		if used > 0 {
			to, used = to+1, 0
		}
	}
	for _, k := range t.src.Keys {
		s := keySource{kind: k.Kind, lanes: lanesOf(k.Width), header: -1, valid: -1, width: k.Width}
		if k.Field.IsValidity() {
			s.valid = k.Field.Header.Index
		} else {
			s.lane = lay.lane(k.Field)
			if !k.Field.Header.Metadata {
				s.header = k.Field.Header.Index
			}
		}
		if k.Mask != nil {
			s.mask = make([]uint64, s.lanes)
			lanesFromBytes(s.mask, k.Mask)
		}
		alone := k.Kind == bmv2json.MatchRange || k.Width > 64
		if k.Kind == bmv2json.MatchRange && k.Width > 64 {
			refuse(t.src.Path, "key %q: a range over %d bits", k.Name, k.Width)
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

// lanesOfMatch is the match's value under its mask, and the mask; of a range, the two bounds.
func (k *keySource) lanesOfMatch(m target.FieldMatch) (value, mask []uint64, err error) {
	if k.kind == bmv2json.MatchValid {
		if len(m.Value) != 1 || m.Value[0] > 1 {
			return nil, nil, fmt.Errorf("a validity is one byte, 0 or 1: %w", target.ErrInvalid)
		}
		return []uint64{uint64(m.Value[0])}, []uint64{1}, nil
	}
	if err := checkBytes(m.Value, k.width); err != nil {
		return nil, nil, err
	}
	value, mask = make([]uint64, k.lanes), make([]uint64, k.lanes)
	lanesFromBytes(value, m.Value)
	switch k.kind {
	case bmv2json.MatchExact:
		for i := range mask {
			mask[i] = ^uint64(0)
		}
		mask[k.lanes-1] = topMask(k.width)
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
		if err := checkBytes(m.Mask, k.width); err != nil {
			return nil, nil, fmt.Errorf("mask: %w", err)
		}
		lanesFromBytes(mask, m.Mask)
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

// canonical is the match as it is given back: what the mask hides is 0.
func (k *keySource) canonical(m target.FieldMatch, value, mask []uint64) target.FieldMatch {
	switch k.kind {
	case bmv2json.MatchValid:
		return target.FieldMatch{Value: slices.Clone(m.Value)}
	case bmv2json.MatchExact:
		return target.FieldMatch{Value: bytesFromLanes(value, k.width)}
	case bmv2json.MatchLPM:
		return target.FieldMatch{Value: bytesFromLanes(value, k.width), PrefixLen: m.PrefixLen}
	}
	return target.FieldMatch{Value: bytesFromLanes(value, k.width),
		Mask: bytesFromLanes(mask, k.width)}
}

// checkBytes checks that b is a value of width bits.
func checkBytes(b []byte, width int) error {
	if len(b) != (width+7)/8 {
		return fmt.Errorf("%d bytes instead of %d: %w", len(b), (width+7)/8, target.ErrInvalid)
	}
	if r := width & 7; r != 0 && b[0]>>r != 0 {
		return fmt.Errorf("0x%x does not fit %d bits: %w", b, width, target.ErrInvalid)
	}
	return nil
}

// word is the key, where it has one lane.
func (t *table) word(st *state) (key uint64) {
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.valid[k.valid] {
				key |= 1 << k.shift
			}
		case k.header >= 0 && !st.valid[k.header]:
		case k.mask == nil:
			key |= st.w[k.lane] << k.shift
		default:
			key |= st.w[k.lane] & k.mask[0] << k.shift
		}
	}
	return key
}

// buildKey puts the key together. A field of a header that is not valid counts as 0, as BMv2 has
// it.
func (t *table) buildKey(st *state) []uint64 {
	key := t.key
	clear(key)
	for i := range t.keys {
		k := &t.keys[i]
		switch {
		case k.valid >= 0:
			if st.valid[k.valid] {
				key[k.to] |= 1 << k.shift
			}
		case k.header >= 0 && !st.valid[k.header]:
		case k.mask == nil && k.lanes == 1:
			key[k.to] |= st.w[k.lane] << k.shift
		case k.mask == nil:
			copy(key[k.to:], st.w[k.lane:k.lane+k.lanes])
		default:
			for j := range k.lanes {
				key[k.to+j] |= st.w[k.lane+j] & k.mask[j] << k.shift
			}
		}
	}
	return key
}

// describeKey is what a packet is looked up with, for people.
func (t *table) describeKey(st *state) string {
	var key strings.Builder
	for i, k := range t.keys {
		if i > 0 {
			key.WriteString(", ")
		}
		fmt.Fprintf(&key, "%s: ", t.src.Keys[i].Name)
		switch {
		case k.valid >= 0:
			fmt.Fprint(&key, st.valid[k.valid])
		case k.header >= 0 && !st.valid[k.header]:
			key.WriteString("0 (its header is not valid)")
		default:
			fmt.Fprintf(&key, "%x", bytesFromLanes(st.w[k.lane:k.lane+k.lanes], k.width))
		}
	}
	return key.String()
}
