//go:build !race

package sim

const testSeeds = 2000
