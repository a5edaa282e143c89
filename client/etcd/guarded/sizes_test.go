package guarded

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// testSizes returns the default amounts of work for these tests: seeds of the simulator, and the
// time for histories in front of a real etcd with each kind of slots. With the race detector a seed
// takes ten times as long; make test also runs everything without it.
func testSizes() (seeds uint64, histories time.Duration) {
	if racedetector.Enabled {
		return 8, time.Second
	}
	return 500, 30 * time.Second
}

// requests returns the number of requests in a comparison with an etcd. With the race detector it
// is a tenth of all: the requests are sequential, so the later ones show it no new races.
func requests(all int) int {
	if racedetector.Enabled {
		return all / 10
	}
	return all
}

// oneByOne skips a test that sends one request after another if the race detector is on.
func oneByOne(t *testing.T) {
	t.Helper()
	if racedetector.Enabled {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
}
