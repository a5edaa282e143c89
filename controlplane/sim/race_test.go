//go:build race

package sim

// testSeeds is small here, because a seed takes ten times as long under the race detector. `make
// test` also runs the seeds without the race detector.
const testSeeds = 60
