//go:build race

package guarded

import "time"

// With the race detector a seed takes ten times as long; `make test` runs the rest without it.
const (
	testSeeds   = 20
	testTime    = time.Second
	testMutants = false
)
