//go:build race

package sim

// Under the race detector a seed takes ten times as long, so it runs few; `make test` also runs
// without it.
const testSeeds = 60
