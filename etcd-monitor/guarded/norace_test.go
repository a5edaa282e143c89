//go:build !race

package guarded

import "time"

const (
	testSeeds   = 500              // of the simulator
	testTime    = 30 * time.Second // of histories before a real etcd, over each kind of slots
	testMutants = true
)
