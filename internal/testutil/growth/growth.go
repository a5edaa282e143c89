// Package growth fails a fuzz target if the fuzzed code keeps memory, goroutines or descriptors of
// finished inputs.
package growth

import (
	"os"
	"runtime"
	"testing"
)

// These are the number of calls between two measurements, and the permitted growth since the first
// measurement.
const (
	every         = 1000
	maxHeap       = 64 << 20
	maxGoroutines = 500
	maxFiles      = 200

	// scratch is the memory that Go's fuzz engine keeps in the process after its first mutated
	// input. That may be later than the first measurement.
	scratch = 100 << 20
)

type size struct{ heap, goroutines, files int }

func measure() size {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/proc/self/fd")
	return size{int(m.HeapAlloc), runtime.NumGoroutine(), len(open)}
}

// Watch returns a function that a fuzz target calls once for each input. The function measures this
// process at every thousandth call, and fails the target if the process has grown.
func Watch() func(t testing.TB) {
	var first size
	calls := 0
	return func(t testing.TB) {
		t.Helper()
		if calls++; calls%every != 0 {
			return
		}
		now := measure()
		if calls == every {
			first = now
		}
		if now.heap > max(first.heap, scratch)+maxHeap || now.goroutines > first.goroutines+maxGoroutines ||
			now.files > first.files+maxFiles {
			t.Fatalf("after %d inputs the process has %d bytes of heap, %d goroutines and %d open files; it had %d, %d and %d",
				calls, now.heap, now.goroutines, now.files, first.heap, first.goroutines, first.files)
		}
	}
}
