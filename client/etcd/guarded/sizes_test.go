package guarded

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// testSizes returns the default amounts of work for these tests. seeds is the number of the
// simulator's seeds. histories is how long the tests run against a real etcd with each kind of
// slots. With the race detector, a seed takes ten times as long. `make test` also runs all tests
// without the race detector.
func testSizes() (seeds uint64, histories time.Duration) {
	if racedetector.Enabled {
		return 8, time.Second
	}
	return 500, 30 * time.Second
}

// requests returns the number of requests in a comparison with an etcd. With the race detector, it
// is a tenth of all requests. The requests are sequential, so more requests would reveal no more
// races.
func requests(all int) int {
	if racedetector.Enabled {
		return all / 10
	}
	return all
}

// oneByOne skips the test if the race detector is on. A test that sends one request after another
// shows no races.
func oneByOne(t *testing.T) {
	t.Helper()
	if racedetector.Enabled {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
}
