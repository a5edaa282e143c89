package bench

import (
	"math"
	"math/rand/v2"
	"sort"
)

// zipf picks indexes below n, index i with a probability proportional to 1/(i+1)^s. Unlike math/rand's it takes exponents of 1 and below, which caches are measured with.
func zipf(r *rand.Rand, s float64, n int) func() int {
	sums := make([]float64, n)
	var sum float64
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	return func() int { return min(sort.SearchFloat64s(sums, r.Float64()*sum), n-1) }
}
