package peers

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Zipf draws keys below n, key i with a probability proportional to 1/(i+1)^s, for Config.Zipf. Unlike math/rand's it takes exponents of 1 and below, which caches are measured with.
func Zipf(s float64, n int) func(*rand.Rand) func() int {
	sums := make([]float64, n)
	var sum float64
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	return func(r *rand.Rand) func() int {
		return func() int { return min(sort.SearchFloat64s(sums, r.Float64()*sum), n-1) }
	}
}
