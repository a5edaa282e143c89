//go:build race

package sim

// With the race detector a seed takes ten times as long; `make test` runs the rest without it.
const testSeeds = 60
