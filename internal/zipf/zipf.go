// Package zipf draws keys by Zipf's law, for the loads of several commands.
package zipf

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Keys returns functions that draw indexes below n from a source of random numbers. Index i has a
// probability proportional to 1/(i+1)^s. Unlike math/rand's Zipf, Keys permits exponents of 1 and
// below, which measurements of caches use.
func Keys(s float64, n int) func(*rand.Rand) func() int {
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
