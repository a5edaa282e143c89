package analysis

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// HeaderOfInput returns the header that is the input or that contains the input. It returns nil for
// a constant.
func HeaderOfInput(in *bmv2json.CalcInput) *bmv2json.Header {
	if in.Header != nil {
		return in.Header
	}
	return in.Field.Header
}

// NeededBy returns the header that must be valid for an input to exist, or nil if the input always
// exists.
func NeededBy(in *bmv2json.CalcInput) *bmv2json.Header {
	if h := HeaderOfInput(in); h != nil && !h.Metadata {
		return h
	}
	return nil
}

// WidthOfInput returns an input's width in bits. For an input with a variable-length part, it
// returns the largest width.
func WidthOfInput(in *bmv2json.CalcInput) int {
	if in.Header == nil {
		return in.Width
	}
	width := in.Header.Type.FixedBits
	if vl := in.Header.Type.VL; vl >= 0 {
		width += in.Header.Type.Fields[vl].Width
	}
	return width
}

// VariableWidth reports whether an input's width depends on the packet.
func VariableWidth(in *bmv2json.CalcInput) bool {
	if in.Header != nil {
		return in.Header.Type.VL >= 0
	}
	return in.Field.Field != nil && in.Field.Field.VL
}

// WithoutPayload returns the inputs other than the payload, and whether the payload is an input.
// Wherever the payload is listed, it is hashed last, starting at the next whole byte.
func WithoutPayload(k *bmv2json.Calculation) (inputs []bmv2json.CalcInput, payload bool) {
	for _, in := range k.Input {
		if in.Payload {
			payload = true
		} else {
			inputs = append(inputs, in)
		}
	}
	return inputs, payload
}

// FixedPlaces reports whether every bit of the inputs has a fixed position once all headers in
// needed are valid.
func FixedPlaces(inputs []bmv2json.CalcInput) (ok bool, needed []*bmv2json.Header) {
	ok = true
	seen := map[*bmv2json.Header]bool{nil: true}
	for i := range inputs {
		ok = ok && !VariableWidth(&inputs[i])
		if h := NeededBy(&inputs[i]); !seen[h] {
			seen[h], needed = true, append(needed, h)
		}
	}
	return ok, needed
}

// AlignedPlaces reports whether each input, and the payload after the inputs, begins at the same
// bit of a unit whichever headers are valid.
func AlignedPlaces(inputs []bmv2json.CalcInput, payload bool, unit int) bool {
	bits, all := map[*bmv2json.Header]int{}, 0
	settled := func(own *bmv2json.Header) bool {
		for h, n := range bits {
			if h != own && n%unit != 0 {
				return false
			}
		}
		return true
	}
	for i := range inputs {
		in := &inputs[i]
		h := NeededBy(in)
		if VariableWidth(in) || !settled(h) || in.Header != nil && all%8 != 0 {
			return false
		}
		if h != nil {
			bits[h] += WidthOfInput(in)
		}
		all += WidthOfInput(in)
	}
	return !payload || settled(nil)
}

// InputBits returns the largest total width of the inputs, in bits.
func InputBits(inputs []bmv2json.CalcInput) (bits int) {
	for i := range inputs {
		if inputs[i].Header != nil {
			bits = (bits + 7) &^ 7
		}
		bits += WidthOfInput(&inputs[i])
	}
	return bits
}
