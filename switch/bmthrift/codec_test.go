package bmthrift

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
)

// TestCodec encodes values of every type in the IDL, compares the bytes, and decodes them again.
func TestCodec(t *testing.T) {
	const kindBool, kindDouble, kindI16, kindMap = 2, 4, 6, 13
	type all struct {
		Port   idl.PortInfo      `thrift:"1"`
		Rates  []idl.MeterRate   `thrift:"2"`
		CRC    idl.CRC16Config   `thrift:"3"`
		Device idl.SwitchInfo    `thrift:"4"`
		Entry  *idl.ActionEntry  `thrift:"5,optional"`
		None   *idl.ActionEntry  `thrift:"6,optional"`
		Empty  []int64           `thrift:"7"`
		Minus  idl.CounterCode   `thrift:"-8"`
		Extra  map[string]string `thrift:"9"`
	}
	v := all{
		Port:  idl.PortInfo{PortNum: 258, IfaceName: "v1", IsUp: true, Extra: map[string]string{"a": "b"}},
		Rates: []idl.MeterRate{{UnitsPerMicros: 1, BurstSize: -1}}, CRC: idl.CRC16Config{Polynomial: -2},
		Device: idl.SwitchInfo{DeviceID: 1 << 40}, Minus: idl.CounterCodeError, Empty: []int64{},
		Entry: &idl.ActionEntry{ActionType: idl.ActionEntryTypeActionData, ActionData: idl.ActionData{{7}}},
		Extra: map[string]string{},
	}
	stop := []byte{0}
	number := func(id uint16, n ...byte) []byte { return fieldHead(kindI32, id, n...) }
	want := join(
		fieldHead(kindStruct, 1, number(1, 0, 0, 1, 2)...), fieldHead(kindString, 2, text("v1")...),
		fieldHead(kindBool, 3, 1), fieldHead(kindMap, 4, kindString, kindString, 0, 0, 0, 1), text("a"),
		text("b"), stop,
		fieldHead(kindList, 2, kindStruct, 0, 0, 0, 1), fieldHead(kindDouble, 1, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0),
		number(2, 255, 255, 255, 255), stop,
		fieldHead(kindStruct, 3, fieldHead(kindI16, 1, 255, 254)...), fieldHead(kindI16, 2, 0, 0),
		fieldHead(kindI16, 3, 0, 0), fieldHead(kindBool, 4, 0), fieldHead(kindBool, 5, 0), stop,
		fieldHead(kindStruct, 4, fieldHead(kindI64, 1, 0, 0, 1, 0, 0, 0, 0, 0)...), number(2, 0, 0, 0, 0), stop,
		fieldHead(kindStruct, 5, number(1, 0, 0, 0, 1)...),
		fieldHead(kindList, 3, kindString, 0, 0, 0, 1), text("\a"), stop,
		fieldHead(kindList, 7, kindI64, 0, 0, 0, 0), number(0xfff8, 0, 0, 0, 3),
		fieldHead(kindMap, 9, kindString, kindString, 0, 0, 0, 0), stop)
	buffer := thrift.NewTMemoryBuffer()
	p := thrift.NewTBinaryProtocolConf(buffer, nil)
	ok(t, structure{reflect.ValueOf(v)}.Write(t.Context(), p))
	if got := buffer.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("%x\nnot %x", got, want)
	}
	var got all
	ok(t, structure{reflect.ValueOf(&got)}.Read(t.Context(), p))
	if !reflect.DeepEqual(got, v) {
		t.Errorf("%+v\nnot %+v", got, v)
	}
}
