package growth

import "testing"

// recorder is a testing.TB that records its failure.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

// TestWatch: a process of constant size passes, and a process that keeps memory fails.
func TestWatch(t *testing.T) {
	var kept [][]byte
	for bytes, want := range map[int]bool{0: false, 100 << 10: true} {
		r, watch := &recorder{TB: t}, Watch()
		for range 3 * every {
			if bytes > 0 {
				kept = append(kept, make([]byte, bytes))
			}
			watch(r)
		}
		if r.failed != want {
			t.Errorf("with %d bytes kept of each input: failed is %v", bytes, r.failed)
		}
	}
	if len(kept) == 0 {
		t.Fatal("nothing was kept")
	}
}
