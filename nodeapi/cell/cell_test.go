package cell

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"
	"testing"
)

var (
	lease = LeaseID{1, 2, 3, 4, 5, 6}
	nonce = Nonce{7, 8, 9}
)

func TestCells(t *testing.T) {
	for _, c := range []struct {
		cell Cell
		want string
	}{
		{Cell{}, "\x00"},
		{Cell{Value: []byte("on")}, "\x00on"},
		{Cell{Value: []byte("7")}, "\x007"},
		{Cell{Value: []byte("07")}, "\x0007"},
		{Cell{Value: []byte("-7")}, "\x10\xF9"},
		{Cell{Value: []byte("127")}, "\x10\x7F"},
		{Cell{Value: []byte("128")}, "\x10\x00\x80"},
		{Cell{Value: []byte("+5")}, "\x00+5"},
		{Cell{Value: []byte("10.0.0.1:80")}, "\x20\x0A\x00\x00\x01\x00\x50"},
		{Cell{Value: []byte("10.0.0.1:080")}, "\x0010.0.0.1:080"},
		{Cell{Value: []byte("[::1]:80")}, "\x00[::1]:80"},
		{Cell{Kind: Bound, Lease: lease, Value: []byte("x")}, "\x01\x01\x02\x03\x04\x05\x06x"},
		{Cell{Kind: Lease, TTLMillis: 3_600_000, Value: []byte("node1")}, "\x02\x36\xEE\x80node1"},
		{Cell{Kind: Lock, Lease: lease, Nonce: nonce}, "\x03\x01\x02\x03\x04\x05\x06\x07\x08\x09"},
		{Cell{Kind: Instance, Lease: lease, Value: []byte("1.2.3.4:5")},
			"\x24\x01\x02\x03\x04\x05\x06\x01\x02\x03\x04\x00\x05"},
	} {
		b := c.cell.Encode()
		if string(b) != c.want {
			t.Errorf("%+v is %q; want %q", c.cell, b, c.want)
		}
		got, err := Decode(b)
		if len(got.Value) == 0 {
			got.Value = nil
		}
		if err != nil || !reflect.DeepEqual(got, c.cell) {
			t.Errorf("%q is %+v, %v; want %+v", b, got, err, c.cell)
		}
	}
}

// TestSixteenBytes checks that certain cells fit the smallest profile: the longest number bound to
// a lease, and an address in each kind of cell that has one.
func TestSixteenBytes(t *testing.T) {
	for _, c := range []Cell{
		{Kind: Bound, Value: []byte(strconv.Itoa(math.MinInt64))},
		{Kind: Bound, Value: []byte("255.255.255.255:65535")},
		{Kind: Lock, Value: []byte("255.255.255.255:65535")},
		{Kind: Instance, Value: []byte("255.255.255.255:65535")},
		{Kind: Lease, TTLMillis: MaxTTLMillis, Value: []byte("worker-12-03")},
	} {
		if b := c.Encode(); len(b) > 16 || len(b) != c.Kind.Overhead()+PackedLen(c.Value) {
			t.Errorf("%+v takes %d bytes: %q", c, len(b), b)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, b := range []string{"", "hello", "\x05", "\x01\x01\x02", "\x10", "\x10123456789", "\x2012345", "\x301",
		"\x80x", "\x02\x00\x00"} {
		if c, err := Decode([]byte(b)); !errors.Is(err, ErrForeign) {
			t.Errorf("%q is %+v, %v", b, c, err)
		}
	}
}

func TestLeaseIDs(t *testing.T) {
	if id, err := ParseLeaseID(lease.String()); id != lease || err != nil {
		t.Errorf("%v, %v", id, err)
	}
	for _, s := range []string{"", "01020304050", "0102030405060", "01020304050g", "0102030405AB", "../../../../"} {
		if id, err := ParseLeaseID(s); err == nil {
			t.Errorf("%q is %v", s, id)
		}
	}
}

// FuzzDecode checks that decoded bytes are either refused or encoded to the same bytes again. It
// also checks that encoding preserves values.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "\x00on", "\x10\xF9", "\x20123456", "\x01123456x", "\x03123456789", "-0", "1.2.3.4:5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Decode(b); err == nil {
			again, err := Decode(c.Encode())
			if err != nil || again.Kind != c.Kind || again.Lease != c.Lease || again.Nonce != c.Nonce ||
				again.TTLMillis != c.TTLMillis || !bytes.Equal(again.Value, c.Value) {
				t.Errorf("%q is %+v, and then %+v, %v", b, c, again, err)
			}
		}
		c, err := Decode(Cell{Kind: Bound, Lease: lease, Value: b}.Encode())
		if err != nil || !bytes.Equal(c.Value, b) {
			t.Errorf("%q comes out as %q, %v", b, c.Value, err)
		}
	})
}
