package bmthrift

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/thrift/lib/go/thrift"
)

// structure turns a struct of package idl, or a pointer to one, into a thrift.TStruct.
type structure struct{ reflect.Value }

// Write implements thrift.TStruct.
func (s structure) Write(ctx context.Context, p thrift.TProtocol) error {
	return encode(ctx, p, s.Value)
}

// Read implements thrift.TStruct. The value must be settable, or a pointer.
func (s structure) Read(ctx context.Context, p thrift.TProtocol) error {
	return decode(ctx, p, reflect.Indirect(s.Value))
}

// field describes one field of a Thrift struct, according to the field's tag.
type field struct {
	id       int16
	optional bool
	wire     thrift.TType
}

// structs caches the parsed field tags of each struct type as []field.
var structs sync.Map

func fieldsOf(t reflect.Type) []field {
	if known, ok := structs.Load(t); ok {
		return known.([]field)
	}
	out := make([]field, t.NumField())
	for i := range out {
		f := t.Field(i)
		number, rest, _ := strings.Cut(f.Tag.Get("thrift"), ",")
		id, err := strconv.ParseInt(number, 10, 16)
		if err != nil {
			panic(fmt.Sprintf("field %s of %v has the tag %q, not thrift:\"ID\"", f.Name, t, f.Tag))
		}
		out[i] = field{int16(id), rest == "optional", wireType(f.Type)}
	}
	structs.Store(t, out)
	return out
}

// wireType returns Thrift's type code for a Go type. Enums are encoded as int32, and binary values
// as strings.
func wireType(t reflect.Type) thrift.TType {
	switch t.Kind() {
	case reflect.Pointer:
		return wireType(t.Elem())
	case reflect.Bool:
		return thrift.BOOL
	case reflect.Int16:
		return thrift.I16
	case reflect.Int32:
		return thrift.I32
	case reflect.Int64:
		return thrift.I64
	case reflect.Float64:
		return thrift.DOUBLE
	case reflect.String:
		return thrift.STRING
	case reflect.Slice:
		if isBinary(t) {
			return thrift.STRING
		}
		return thrift.LIST
	case reflect.Map:
		return thrift.MAP
	case reflect.Struct:
		return thrift.STRUCT
	}
	panic(fmt.Sprintf("package idl uses no type like %v", t))
}

func isBinary(t reflect.Type) bool { return t.Elem().Kind() == reflect.Uint8 }

// encode writes a value. The value must not be a nil pointer.
func encode(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		return encode(ctx, p, v.Elem())
	case reflect.Bool:
		return p.WriteBool(ctx, v.Bool())
	case reflect.Int16:
		return p.WriteI16(ctx, int16(v.Int()))
	case reflect.Int32:
		return p.WriteI32(ctx, int32(v.Int()))
	case reflect.Int64:
		return p.WriteI64(ctx, v.Int())
	case reflect.Float64:
		return p.WriteDouble(ctx, v.Float())
	case reflect.String:
		return p.WriteString(ctx, v.String())
	case reflect.Slice:
		if isBinary(v.Type()) {
			return p.WriteBinary(ctx, v.Bytes())
		}
		return encodeList(ctx, p, v)
	case reflect.Map:
		return encodeMap(ctx, p, v)
	default:
		return encodeStruct(ctx, p, v)
	}
}

func encodeList(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	if err := p.WriteListBegin(ctx, wireType(v.Type().Elem()), v.Len()); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := encode(ctx, p, v.Index(i)); err != nil {
			return err
		}
	}
	return p.WriteListEnd(ctx)
}

func encodeMap(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	t := v.Type()
	if err := p.WriteMapBegin(ctx, wireType(t.Key()), wireType(t.Elem()), v.Len()); err != nil {
		return err
	}
	for key, value := range v.Seq2() {
		if err := encode(ctx, p, key); err != nil {
			return err
		}
		if err := encode(ctx, p, value); err != nil {
			return err
		}
	}
	return p.WriteMapEnd(ctx)
}

func encodeStruct(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	if err := p.WriteStructBegin(ctx, ""); err != nil {
		return err
	}
	for i, f := range fieldsOf(v.Type()) {
		if f.optional && v.Field(i).IsNil() {
			continue
		}
		if err := p.WriteFieldBegin(ctx, "", f.wire, f.id); err != nil {
			return err
		}
		if err := encode(ctx, p, v.Field(i)); err != nil {
			return err
		}
		if err := p.WriteFieldEnd(ctx); err != nil {
			return err
		}
	}
	if err := p.WriteFieldStop(ctx); err != nil {
		return err
	}
	return p.WriteStructEnd(ctx)
}

// decode reads a value. If a field number occurs twice, the later field replaces the earlier one.
func decode(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decode(ctx, p, v.Elem())
	case reflect.Bool:
		b, err := p.ReadBool(ctx)
		v.SetBool(b)
		return err
	case reflect.Int16:
		n, err := p.ReadI16(ctx)
		v.SetInt(int64(n))
		return err
	case reflect.Int32:
		n, err := p.ReadI32(ctx)
		v.SetInt(int64(n))
		return err
	case reflect.Int64:
		n, err := p.ReadI64(ctx)
		v.SetInt(n)
		return err
	case reflect.Float64:
		n, err := p.ReadDouble(ctx)
		v.SetFloat(n)
		return err
	case reflect.String:
		s, err := p.ReadString(ctx)
		v.SetString(s)
		return err
	case reflect.Slice:
		if isBinary(v.Type()) {
			b, err := p.ReadBinary(ctx)
			v.SetBytes(b)
			return err
		}
		return decodeList(ctx, p, v)
	case reflect.Map:
		return decodeMap(ctx, p, v)
	default:
		return decodeStruct(ctx, p, v)
	}
}

// decodeList decodes a list. It allocates as many elements as the message announces. The protocol's
// configuration bounds that number (see maxElements).
func decodeList(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	wire, n, err := p.ReadListBegin(ctx)
	if err != nil {
		return err
	}
	if err := sameType(wire, v.Type().Elem(), n); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		if err := decode(ctx, p, v.Index(i)); err != nil {
			return err
		}
	}
	return p.ReadListEnd(ctx)
}

func decodeMap(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	t := v.Type()
	keys, values, n, err := p.ReadMapBegin(ctx)
	if err != nil {
		return err
	}
	if err := sameType(keys, t.Key(), n); err != nil {
		return err
	}
	if err := sameType(values, t.Elem(), n); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(t))
	for range n {
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if err := decode(ctx, p, key); err != nil {
			return err
		}
		if err := decode(ctx, p, value); err != nil {
			return err
		}
		v.SetMapIndex(key, value)
	}
	return p.ReadMapEnd(ctx)
}

// sameType returns an error if a list or map of n elements has another element type than the IDL
// specifies.
func sameType(got thrift.TType, want reflect.Type, n int) error {
	if n == 0 || got == wireType(want) {
		return nil
	}
	return thrift.NewTProtocolExceptionWithType(thrift.INVALID_DATA,
		fmt.Errorf("a list or map has elements of type %v, not %v", got, wireType(want)))
}

// decodeStruct reads a struct. It skips unknown fields and fields of a wrong type.
func decodeStruct(ctx context.Context, p thrift.TProtocol, v reflect.Value) error {
	v.SetZero()
	fields := fieldsOf(v.Type())
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, wire, id, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		if wire == thrift.STOP {
			return p.ReadStructEnd(ctx)
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.id == id && f.wire == wire })
		if i < 0 {
			err = p.Skip(ctx, wire)
		} else {
			err = decode(ctx, p, v.Field(i))
		}
		if err != nil {
			return err
		}
		if err := p.ReadFieldEnd(ctx); err != nil {
			return err
		}
	}
}
