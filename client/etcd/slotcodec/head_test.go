package slotcodec

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
		{"\x82\x05rest", Value, 5, true},
		{"\x83\x80\x01", Value, 128, true},
		{"\x81", Clear, 0, true},
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

// CheckSlot recognizes some forged content without a sealing key. It accepts a slot without a seal
// only in one version.
func TestCheckSlot(t *testing.T) {
	seal := string(make([]byte, SealOverhead))
	const made = 1<<48 | 7
	for _, c := range []struct {
		slot    string
		version uint64
		ok      bool
	}{
		{Unsealed, 1<<48 | 7, true}, {Unsealed, 1<<48 | 8, false}, {Unsealed, 2<<48 | 7, false}, {Unsealed, 0, false},
		{"\x81" + seal, 9, true}, {"\x82\x05" + seal, 9, true}, {"\x83\x05" + seal + "zstd", 9, true},
		{"\x84\x80\x01" + seal, 9, true}, {"\x85" + seal + "12", 9, true}, {"\x86" + seal, 9, true},
		{"\x81" + seal[1:], 9, false}, {"\x84\x80\x01" + seal[1:], 9, false},
		{"", 9, false}, {"\x01\x00", 1<<48 | 7, false}, {"\x02\x05v", 9, false}, {"\x04\x05", 9, false},
		{"\x05\x01\x01", 9, false}, {"\x06", 9, false}, {"\x80" + seal, 9, false}, {"\x87" + seal,
			9, false},
		{"\x82\x00" + seal, 9, false},
	} {
		if err := CheckSlot([]byte(c.slot), c.version, made); (err == nil) != c.ok {
			t.Errorf("%q in version %d: %v", c.slot, c.version, err)
		}
	}
}
