package guarded

import (
	"time"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// testSizes are how much the tests here do unless told otherwise: seeds of the simulator, and time
// for histories before a real etcd with each kind of slots. With the race detector a seed takes ten
// times as long; make test runs the whole without it.
func testSizes() (seeds uint64, histories time.Duration) {
	if racedetector.Enabled {
		return 20, time.Second
	}
	return 500, 30 * time.Second
}
