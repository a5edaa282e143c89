// Package await lets tests wait for the effects of other goroutines.
package await

import (
	"testing"
	"time"
)

// Until waits until so returns true. It fails the test when the limit is exceeded.
func Until(t testing.TB, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", limit, what)
		}
	}
}
