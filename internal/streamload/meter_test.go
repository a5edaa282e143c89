package streamload

import (
	"sync"
	"testing"
)

// TestMark: a mark is consistent, even while other goroutines count.
func TestMark(t *testing.T) {
	var m Meter
	var counting sync.WaitGroup
	for range 4 {
		counting.Go(func() {
			for range 5000 {
				m.Add(1, 100, 2)
			}
		})
	}
	for at := m.Mark(); at.Records < 4*5000; at = m.Mark() {
		if at.Bytes != 100*at.Records || at.Missed != 2*at.Records {
			t.Fatalf("%+v", at)
		}
	}
	counting.Wait()
}
