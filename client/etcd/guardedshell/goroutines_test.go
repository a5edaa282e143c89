package guardedshell

import (
	"sync"
	"testing"
)

// TestGoroutines checks that work that begins during Close causes no race (-race checks this), and
// that Close waits for work that began earlier.
func TestGoroutines(t *testing.T) {
	for range 200 {
		g := NewGoroutines()
		var mu sync.Mutex
		done := false
		g.Go(func() {
			g.Wait(t.Context(), nil, 0) // this waits until Close
			mu.Lock()
			defer mu.Unlock()
			done = true
		})
		var late sync.WaitGroup
		for range 4 {
			late.Go(func() { g.Go(func() {}) })
		}
		g.Close()
		mu.Lock()
		if !done {
			t.Error("Close does not wait")
		}
		mu.Unlock()
		late.Wait()
	}
}
