//go:build !race

package guarded

const testSeeds = 1000
