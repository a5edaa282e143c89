package calculation

import (
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/target"
)

// TestHashes compares the algorithms with published check values (the CRC catalogue's "123456789")
// and with the example of RFC 1071.
func TestHashes(t *testing.T) {
	random := rand.NewPCG(1, 1)
	check := []byte("123456789")
	for _, tt := range []struct {
		algo  string
		input []byte
		want  uint64
	}{
		{"crc16", check, 0xbb3d},
		{"crc16_custom", check, 0xbb3d},
		{"crc32", check, 0xcbf43926},
		{"crc32_custom", check, 0xcbf43926},
		{"crcCCITT", check, 0x29b1},
		{"crc8_custom", check, 0xf4},
		{"crc64_custom", check, slowCRC64(check)},
		{"csum16", []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0x220d},
		{"csum16", []byte{0x00, 0x01, 0xf2}, 0x0dfe},
		{"csum16", nil, 0xffff},
		{"xor16", []byte{0x12, 0x34, 0x00, 0xff, 0x01}, 0x13cb},
		{"xor32", []byte{1, 2, 3, 4, 0xf0}, 0xf1020304},
		{"identity", []byte{0xab, 0xcd}, 0xabcd},
		{"identity", []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0x0102030405060708},
	} {
		if got := Algorithm(tt.algo, random)(tt.input); got != tt.want {
			t.Errorf("%s(%x) is 0x%x, want 0x%x", tt.algo, tt.input, got, tt.want)
		}
	}
	if Algorithm("md5", random) != nil {
		t.Error("an algorithm that there is not")
	}
}

// slowCRC64 computes the CRC with polynomial 0x1b and reflected input and output, bit by bit.
func slowCRC64(b []byte) uint64 {
	var v uint64
	for _, x := range b {
		v ^= uint64(bits.Reverse8(x)) << 56
		for range 8 {
			top := v >> 63
			v <<= 1
			if top == 1 {
				v ^= 0x1b
			}
		}
	}
	return bits.Reverse64(v)
}

// TestCustomCRC compares CRCs that have custom parameters with the check values of the CRC
// catalogue.
func TestCustomCRC(t *testing.T) {
	for _, tt := range []struct {
		name  string
		width int
		crc   target.CRC
		want  uint64
	}{
		{"CRC-16/ARC", 16, target.CRC{Polynomial: 0x8005, ReflectIn: true, ReflectOut: true}, 0xbb3d},
		{"CRC-16/XMODEM", 16, target.CRC{Polynomial: 0x1021}, 0x31c3},
		{"CRC-16/GENIBUS", 16, target.CRC{Polynomial: 0x1021, Init: 0xffff, XorOut: 0xffff}, 0xd64e},
		{"CRC-32/ISO-HDLC", 32, target.CRC{Polynomial: 0x04c11db7, Init: 1<<32 - 1,
			XorOut: 1<<32 - 1, ReflectIn: true, ReflectOut: true}, 0xcbf43926},
		{"CRC-32/BZIP2", 32, target.CRC{Polynomial: 0x04c11db7, Init: 1<<32 - 1,
			XorOut: 1<<32 - 1}, 0xfc891918},
		{"CRC-32/ISCSI", 32, target.CRC{Polynomial: 0x1edc6f41, Init: 1<<32 - 1,
			XorOut: 1<<32 - 1, ReflectIn: true, ReflectOut: true}, 0xe3069283},
	} {
		if got := crcWith(tt.width, tt.crc)([]byte("123456789")); got != tt.want {
			t.Errorf("%s is 0x%x, want 0x%x", tt.name, got, tt.want)
		}
	}
}

// TestSum checks that the Internet checksum of fields equals the checksum of the bytes that the
// fields form, wherever the fields are in the bytes.
func TestSum(t *testing.T) {
	r, seen := rand.New(rand.NewPCG(1, 1)), 0
	for _, name := range []string{"checksums", "stateful", "parsing"} {
		prog, err := bmv2json.ReadFile(filepath.Join("..", "..", "..", "stf", "testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		lay := packet.NewLayout(prog)
		for _, c := range prog.Calculations {
			k := New(lay, c.Algo, c.Input, c.Path, nil)
			if !k.internet || k.words == nil {
				continue
			}
			seen++
			st := packet.NewState(lay)
			for i := range st.Valid {
				st.Valid[i] = true
			}
			for i := range 200 {
				for j, w := range lay.Widths() {
					st.Lanes[j] = r.Uint64() >> (64 - w) & []uint64{0, ^uint64(0), r.Uint64()}[min(i, 2)]
				}
				if got, want := k.sum(st), InternetChecksum(k.input(st)); got != want {
					t.Fatalf("%s: %x, and not %x", name, got, want)
				}
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d checksums: the programs have more", seen)
	}
}
