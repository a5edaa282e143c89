package placed

import "testing"

func TestReadSlot(t *testing.T) {
	for _, c := range []struct {
		slot string
		kind Kind
		rev  int64
		ok   bool
	}{
		{"\x01", Clear, 0, true},
		{"\x01rest", Clear, 0, true},
		{"\x02\x05rest", Value, 5, true},
		{"\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Value, 1<<63 - 1, true},
		{"\x04\x80\x01", Absent, 128, true},
		{"\x03\x80\x01", Value, 128, true},
		{"\x05\x00", Guard, 0, true},
		{"\x06", Unfit, 0, true},
		{"", 0, 0, false},
		{"\x00", 0, 0, false},
		{"\x07", 0, 0, false},
		{"\x02", 0, 0, false},
		{"\x02\x00", 0, 0, false},
		{"\x04\x80", 0, 0, false},
		{"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, 0, false},
	} {
		kind, rev, _, err := ReadSlot([]byte(c.slot))
		if kind != c.kind || rev != c.rev || (err == nil) != c.ok {
			t.Errorf("%q: %v, revision %d, %v", c.slot, kind, rev, err)
		}
	}
}
