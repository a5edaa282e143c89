package packet

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/testutil"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// TestFieldsOnTheWire writes random values into headers of random layout, and reads them back. It
// compares the bytes with those of a big integer.
func TestFieldsOnTheWire(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		ht := &bmv2json.HeaderType{VL: -1}
		whole := new(big.Int)
		var values []*big.Int
		for n := 1 + r.IntN(12); n > 0 || ht.FixedBits%8 != 0; n-- {
			w := 1 + r.IntN(70)
			switch r.IntN(5) {
			case 0:
				w = 8 << r.IntN(4)
			case 1:
				w = 65 + r.IntN(200)
			}
			if n <= 0 {
				w = 8 - ht.FixedBits%8
			}
			ht.Fields = append(ht.Fields, &bmv2json.Field{Index: len(ht.Fields), Width: w,
				Offset: ht.FixedBits})
			ht.FixedBits += w
			values = append(values, testutil.RandomBits(r, w))
			whole.Lsh(whole, uint(w)).Or(whole, values[len(values)-1])
		}
		prog := &bmv2json.Program{HeaderTypes: []*bmv2json.HeaderType{ht},
			Headers: []*bmv2json.Header{{Type: ht}}}
		lay := NewLayout(prog).Headers[0].Type
		lanes := make([]uint64, lay.Lanes)
		for i, v := range values {
			wideint.SetBig(lanes[lay.FieldLanes[i]:lay.FieldLanes[i]+wideint.Lanes(ht.Fields[i].Width)], v)
		}
		b := make([]byte, ht.FixedBits/8)
		for i := range b {
			b[i] = byte(r.Uint32()) // the bytes' earlier contents must not remain
		}
		WriteFields(b, lanes, lay.Wire)
		if got := new(big.Int).SetBytes(b); got.Cmp(whole) != 0 {
			t.Fatalf("wrote %x, want %x", got, whole)
		}
		again := make([]uint64, lay.Lanes)
		ReadFields(again, lay.Wire, b)
		if !slices.Equal(again, lanes) {
			t.Fatalf("read %x, want %x", again, lanes)
		}
	}
}
