package wideint

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/switch/interp/internal/testutil"
)

func TestBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for w := 1; w <= 300; w++ {
		v := testutil.RandomBits(r, w)
		lanes := make([]uint64, Lanes(w))
		SetBytes(lanes, v.FillBytes(make([]byte, (w+7)/8)))
		if got := Big(lanes); got.Cmp(v) != 0 {
			t.Fatalf("%d bits: %x, want %x", w, got, v)
		}
		if got := new(big.Int).SetBytes(Bytes(lanes, w)); got.Cmp(v) != 0 {
			t.Fatalf("%d bits: %x, want %x", w, got, v)
		}
	}
}
