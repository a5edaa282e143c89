// Package await lets tests wait for the effects of other goroutines.
package await

import (
	"testing"
	"time"
)

// Until waits until the function `so` returns true. It fails the test if that takes longer than
// `limit`. `what` names the awaited condition in the failure.
func Until(t testing.TB, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", limit, what)
		}
	}
}
