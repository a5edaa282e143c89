package guarded

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// testSizes are how much the tests here do unless told otherwise: seeds of the simulator, and time
// for histories before a real etcd with each kind of slots. With the race detector a seed takes ten
// times as long; make test runs the whole without it.
func testSizes() (seeds uint64, histories time.Duration) {
	if racedetector.Enabled {
		return 8, time.Second
	}
	return 500, 30 * time.Second
}

// requests is how many of all make a comparison with an etcd: they come one by one, which has the
// race detector find nothing but what the first ones have shown.
func requests(all int) int {
	if racedetector.Enabled {
		return all / 10
	}
	return all
}

// oneByOne leaves a test out that asks one thing after the other, where the race detector is.
func oneByOne(t *testing.T) {
	t.Helper()
	if racedetector.Enabled {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
}
