package zipf

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestKeys: the shares of the first keys follow Zipf's law.
func TestKeys(t *testing.T) {
	const n, draws = 10_000, 200_000
	pick := Keys(.99, n)(rand.New(rand.NewPCG(1, 2)))
	counts := make([]int, n)
	for range draws {
		counts[pick()]++
	}
	var sum float64
	for i := range n {
		sum += math.Pow(float64(i+1), -.99)
	}
	for i := range 5 {
		want := math.Pow(float64(i+1), -.99) / sum
		if got := float64(counts[i]) / draws; math.Abs(got/want-1) > .05 {
			t.Errorf("key %d has a share of %.4f, want %.4f", i, got, want)
		}
	}
}
