package translate

import (
	"fmt"
	"math/big"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// dataType is a P4DataTypeSpec (specification section 8.5) with resolved names.
type dataType struct {
	Kind    dataKind
	Width   int
	members []*dataType // the members of a struct, tuple or header
	// The constants of an enum without representation, or of the errors, numbered from 0.
	names []string
}

type dataKind int

const (
	KindBits   dataKind = iota // bit<W>
	kindSigned                 // int<W>
	kindBool
	kindEnum // a serializable enum, sent as the value of a constant
	// An enum without representation, sent as the name of a constant. The target chooses its width,
	// so the width is 0 here.
	kindName
	kindError // an error, sent as its name, like kindName
	kindStruct
	kindTuple
	kindHeader
)

// maxTypeParts is the largest total number of a type's members at all levels. A P4Info can contain
// a type that includes itself. It can also contain types that each include the next type twice,
// many levels deep.
const maxTypeParts = 10_000

// resolveType follows type names until only widths are left.
func resolveType(names *p4cfg.P4TypeInfo, spec *p4cfg.P4DataTypeSpec) (*dataType, error) {
	return (&typeResolver{P4TypeInfo: names, left: maxTypeParts}).resolve(spec)
}

// typeResolver resolves one type.
type typeResolver struct {
	*p4cfg.P4TypeInfo
	left int // number of parts that the type may still have
}

func (names *typeResolver) resolve(spec *p4cfg.P4DataTypeSpec) (*dataType, error) {
	if names.left--; names.left < 0 {
		return nil, fmt.Errorf("a type in the P4Info contains itself, or has more than %d members", maxTypeParts)
	}
	switch t := spec.GetTypeSpec().(type) {
	case *p4cfg.P4DataTypeSpec_Bitstring:
		return resolveBits(t.Bitstring)
	case *p4cfg.P4DataTypeSpec_Bool:
		return &dataType{Kind: kindBool, Width: 1}, nil
	case *p4cfg.P4DataTypeSpec_SerializableEnum:
		e := names.GetSerializableEnums()[t.SerializableEnum.GetName()]
		if e == nil {
			return nil, fmt.Errorf("the P4Info does not say what enum %s is",
				t.SerializableEnum.GetName())
		}
		return &dataType{Kind: kindEnum, Width: int(e.UnderlyingType.GetBitwidth())}, nil
	case *p4cfg.P4DataTypeSpec_Enum:
		e := names.GetEnums()[t.Enum.GetName()]
		if e == nil {
			return nil, fmt.Errorf("the P4Info does not say what enum %s is", t.Enum.GetName())
		}
		out := &dataType{Kind: kindName}
		for _, m := range e.Members {
			out.names = append(out.names, m.Name)
		}
		return out, nil
	case *p4cfg.P4DataTypeSpec_Error:
		return &dataType{Kind: kindError, names: names.GetError().GetMembers()}, nil
	case *p4cfg.P4DataTypeSpec_NewType:
		n := names.GetNewTypes()[t.NewType.GetName()]
		if n == nil {
			return nil, fmt.Errorf("the P4Info does not say what type %s is", t.NewType.GetName())
		}
		if tr := n.GetTranslatedType(); tr != nil {
			return nil,
				fmt.Errorf(
					"type %s has @p4runtime_translation(%q), which this target does not support",
					t.NewType.GetName(), tr.Uri)
		}
		return names.resolve(n.GetOriginalType())
	case *p4cfg.P4DataTypeSpec_Struct:
		s := names.GetStructs()[t.Struct.GetName()]
		if s == nil {
			return nil, fmt.Errorf("the P4Info does not say what struct %s is", t.Struct.GetName())
		}
		out := &dataType{Kind: kindStruct}
		for _, m := range s.Members {
			if err := out.add(names, m.TypeSpec); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *p4cfg.P4DataTypeSpec_Tuple:
		out := &dataType{Kind: kindTuple}
		for _, m := range t.Tuple.Members {
			if err := out.add(names, m); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *p4cfg.P4DataTypeSpec_Header:
		h := names.GetHeaders()[t.Header.GetName()]
		if h == nil {
			return nil, fmt.Errorf("the P4Info does not say what header %s is", t.Header.GetName())
		}
		out := &dataType{Kind: kindHeader}
		for _, m := range h.Members {
			bits, err := resolveBits(m.TypeSpec)
			if err != nil {
				return nil, err
			}
			out.members = append(out.members, bits)
		}
		return out, nil
	case nil:
		return nil, fmt.Errorf("the P4Info gives no type")
	default:
		return nil, fmt.Errorf("data of type %T is not supported", t)
	}
}

func (d *dataType) add(names *typeResolver, spec *p4cfg.P4DataTypeSpec) error {
	m, err := names.resolve(spec)
	if err != nil {
		return err
	}
	d.members = append(d.members, m)
	return nil
}

func resolveBits(spec *p4cfg.P4BitstringLikeTypeSpec) (*dataType, error) {
	switch t := spec.GetTypeSpec().(type) {
	case *p4cfg.P4BitstringLikeTypeSpec_Bit:
		return &dataType{Kind: KindBits, Width: int(t.Bit.Bitwidth)}, nil
	case *p4cfg.P4BitstringLikeTypeSpec_Int:
		return &dataType{Kind: kindSigned, Width: int(t.Int.Bitwidth)}, nil
	default:
		return nil, fmt.Errorf("data of type %T is not supported", t)
	}
}

// widths appends the widths of the scalars in d, in order.
func (d *dataType) widths(to []int) []int {
	switch d.Kind {
	case kindStruct, kindTuple, kindHeader:
		for _, m := range d.members {
			to = m.widths(to)
		}
		return to
	default:
		return append(to, d.Width)
	}
}

// Encode converts an engine's scalars to P4Data, and returns the remaining scalars.
func (d *dataType) Encode(scalars [][]byte) (*p4v1.P4Data, [][]byte) {
	if d.Kind == kindStruct || d.Kind == kindTuple || d.Kind == kindHeader {
		var members []*p4v1.P4Data
		var bits [][]byte
		for _, m := range d.members {
			var v *p4v1.P4Data
			v, scalars = m.Encode(scalars)
			members = append(members, v)
			bits = append(bits, v.GetBitstring())
		}
		switch d.Kind {
		case kindStruct:
			return &p4v1.P4Data{Data: &p4v1.P4Data_Struct{Struct: &p4v1.P4StructLike{
				Members: members}}}, scalars
		case kindTuple:
			return &p4v1.P4Data{Data: &p4v1.P4Data_Tuple{Tuple: &p4v1.P4StructLike{
				Members: members}}}, scalars
		default:
			return &p4v1.P4Data{Data: &p4v1.P4Data_Header{Header: &p4v1.P4Header{IsValid: true,
				Bitstrings: bits}}}, scalars
		}
	}
	var v []byte
	if len(scalars) > 0 {
		v, scalars = scalars[0], scalars[1:]
	}
	switch d.Kind {
	case kindBool:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Bool{Bool: !IsZero(v)}}, scalars
	case kindEnum:
		return &p4v1.P4Data{Data: &p4v1.P4Data_EnumValue{EnumValue: Shorten(v)}}, scalars
	case kindName:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Enum{Enum: d.constant(v)}}, scalars
	case kindError:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Error{Error: d.constant(v)}}, scalars
	case kindSigned:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: shortenSigned(v, d.Width)}},
			scalars
	default:
		return &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: Shorten(v)}}, scalars
	}
}

// constant returns the name of the constant with the number v.
func (d *dataType) constant(v []byte) string {
	if n := new(big.Int).SetBytes(v); n.IsInt64() && n.Int64() < int64(len(d.names)) {
		return d.names[n.Int64()]
	}
	return fmt.Sprintf("%#x", v)
}

// Decode returns the value of a scalar type with its full width.
func (d *dataType) Decode(v *p4v1.P4Data) ([]byte, error) {
	switch t := v.GetData().(type) {
	case *p4v1.P4Data_Bitstring:
		switch d.Kind {
		case KindBits:
			return Widen(t.Bitstring, d.Width)
		case kindSigned:
			return widenSigned(t.Bitstring, d.Width)
		}
	case *p4v1.P4Data_Bool:
		if d.Kind == kindBool {
			if t.Bool {
				return []byte{1}, nil
			}
			return []byte{0}, nil
		}
	case *p4v1.P4Data_EnumValue:
		if d.Kind == kindEnum {
			return Widen(t.EnumValue, d.Width)
		}
	case nil:
		return nil, Invalidf("the data is missing; it has to be %v", d)
	}
	return nil, Invalidf("the data is %s; it has to be %v", OneofName(v), d)
}

func (d *dataType) String() string {
	switch d.Kind {
	case KindBits:
		return fmt.Sprintf("a bitstring of %d bits", d.Width)
	case kindSigned:
		return fmt.Sprintf("a bitstring of %d bits, signed", d.Width)
	case kindBool:
		return "a bool"
	case kindEnum:
		return fmt.Sprintf("an enum_value of %d bits", d.Width)
	default:
		return "a struct, tuple or header"
	}
}
