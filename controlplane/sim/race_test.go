//go:build race

package sim

// A seed takes ten times as long under the race detector, so few seeds are run with it. `make test`
// also runs the seeds without it.
const testSeeds = 60
