package translate

import (
	"bytes"
	"encoding/binary"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/target"
)

// MatchOf converts the fields of a request to the engine's match on keys, by section 9.1.1 ("Match
// Format"). Fields that match everything must be left out, and ignored bits must be zero. Every
// violation is INVALID_ARGUMENT.
func MatchOf(where string, keys []key, fields []*p4v1.FieldMatch) ([]target.FieldMatch, error) {
	out := make([]target.FieldMatch, len(keys))
	given := make([]bool, len(keys))
	for _, f := range fields {
		i := -1
		for j := range keys {
			if keys[j].id == f.FieldId {
				i = j
			}
		}
		if i < 0 {
			return nil, Invalidf("%s has no match field %d", where, f.FieldId)
		}
		k := &keys[i]
		if given[i] {
			return nil, Invalidf("%s: %v is given twice", where, k)
		}
		given[i] = true
		m, err := k.match(f)
		if err != nil {
			return nil, Invalidf("%s: %v: %s", where, k, status.Convert(err).Message())
		}
		out[i] = m
	}
	for i := range keys {
		if given[i] {
			continue
		}
		if keys[i].kind == p4cfg.MatchField_EXACT {
			return nil, Invalidf("%s: %v is matched exactly and must be given", where, &keys[i])
		}
		out[i] = keys[i].dontCare()
	}
	return out, nil
}

// dontCare returns the match that matches every value.
func (k *key) dontCare() target.FieldMatch {
	zero := make([]byte, (k.width+7)/8)
	if k.kind == p4cfg.MatchField_RANGE {
		return target.FieldMatch{Value: zero, Mask: allOnes(k.width)}
	}
	return target.FieldMatch{Value: zero, Mask: bytes.Clone(zero)}
}

func (k *key) match(f *p4v1.FieldMatch) (target.FieldMatch, error) {
	var none target.FieldMatch
	switch k.kind {
	case p4cfg.MatchField_EXACT:
		e := f.GetExact()
		if e == nil {
			return none, k.wrongKind(f)
		}
		v, err := Widen(e.Value, k.width)
		return target.FieldMatch{Value: v}, err
	case p4cfg.MatchField_OPTIONAL:
		o := f.GetOptional()
		if o == nil {
			return none, k.wrongKind(f)
		}
		v, err := Widen(o.Value, k.width)
		return target.FieldMatch{Value: v, Mask: allOnes(k.width)}, err
	case p4cfg.MatchField_LPM:
		l := f.GetLpm()
		if l == nil {
			return none, k.wrongKind(f)
		}
		v, err := Widen(l.Value, k.width)
		if err != nil {
			return none, err
		}
		if l.PrefixLen == 0 {
			return none, Invalidf("a prefix of length 0 matches everything: leave the field out")
		}
		if l.PrefixLen < 0 || int(l.PrefixLen) > k.width {
			return none, Invalidf("the prefix length %d is not between 1 and %d", l.PrefixLen,
				k.width)
		}
		if !covers(prefixMask(int(l.PrefixLen), k.width), v) {
			return none, Invalidf("the value 0x%x has ones behind its prefix of %d bits", v,
				l.PrefixLen)
		}
		return target.FieldMatch{Value: v, PrefixLen: int(l.PrefixLen)}, nil
	case p4cfg.MatchField_TERNARY:
		t := f.GetTernary()
		if t == nil {
			return none, k.wrongKind(f)
		}
		v, err := Widen(t.Value, k.width)
		if err != nil {
			return none, err
		}
		m, err := Widen(t.Mask, k.width)
		if err != nil {
			return none, err
		}
		if IsZero(m) {
			return none, Invalidf("a mask of zero matches everything: leave the field out")
		}
		if !covers(m, v) {
			return none, Invalidf("the value 0x%x has ones where its mask 0x%x has zeros", v, m)
		}
		return target.FieldMatch{Value: v, Mask: m}, nil
	case p4cfg.MatchField_RANGE:
		r := f.GetRange()
		if r == nil {
			return none, k.wrongKind(f)
		}
		low, err := Widen(r.Low, k.width)
		if err != nil {
			return none, err
		}
		high, err := Widen(r.High, k.width)
		if err != nil {
			return none, err
		}
		if bytes.Compare(low, high) > 0 {
			return none, Invalidf("the low bound 0x%x is above the high bound 0x%x", low, high)
		}
		if IsZero(low) && bytes.Equal(high, allOnes(k.width)) {
			return none, Invalidf("a range of all values matches everything: leave the field out")
		}
		return target.FieldMatch{Value: low, Mask: high}, nil
	default:
		return none, Invalidf("match type %v is not supported", k.kind)
	}
}

func (k *key) wrongKind(f *p4v1.FieldMatch) error {
	if f.FieldMatchType == nil {
		return Invalidf("the match is missing; the field is matched %v", k.kind)
	}
	return Invalidf("the match is %s; the field is matched %v", OneofName(f), k.kind)
}

// FieldsOf is the inverse of MatchOf.
func FieldsOf(keys []key, match []target.FieldMatch) []*p4v1.FieldMatch {
	var out []*p4v1.FieldMatch
	for i := range keys {
		if i >= len(match) {
			break
		}
		if f := keys[i].field(&match[i]); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// field returns the canonical form of m, or nil if m matches every value.
func (k *key) field(m *target.FieldMatch) *p4v1.FieldMatch {
	f := &p4v1.FieldMatch{FieldId: k.id}
	switch k.kind {
	case p4cfg.MatchField_LPM:
		if m.PrefixLen == 0 {
			return nil
		}
		f.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: Shorten(m.Value),
			PrefixLen: int32(m.PrefixLen)}}
	case p4cfg.MatchField_TERNARY:
		if IsZero(m.Mask) {
			return nil
		}
		f.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{
			Value: Shorten(m.Value), Mask: Shorten(m.Mask)}}
	case p4cfg.MatchField_OPTIONAL:
		if IsZero(m.Mask) {
			return nil
		}
		f.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{
			Value: Shorten(m.Value)}}
	case p4cfg.MatchField_RANGE:
		if IsZero(m.Value) && bytes.Equal(m.Mask, allOnes(k.width)) {
			return nil
		}
		f.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: Shorten(
			m.Value), High: Shorten(m.Mask)}}
	default:
		f.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: Shorten(
			m.Value)}}
	}
	return f
}

// MatchKey returns a string that identifies an entry within its table by its match and priority.
func MatchKey(match []target.FieldMatch, priority int) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(priority))
	for i := range match {
		b = append(b, match[i].Value...)
		b = append(b, match[i].Mask...)
		b = binary.BigEndian.AppendUint16(b, uint16(match[i].PrefixLen))
	}
	return string(b)
}
