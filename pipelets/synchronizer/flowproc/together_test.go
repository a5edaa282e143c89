package flowproc

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// TestTogether checks that flows that each stay within their own limit cannot exceed the joint
// limit. The process with the most memory must be killed, with an error that says why. A small flow
// must continue.
func TestTogether(t *testing.T) {
	// slack is the memory that four processes can allocate between two checks
	const most, slack = 256 << 20, 256 << 20
	was := MemoryTogether()
	togetherMost().Store(most)
	defer togetherMost().Store(was)
	// This query has 8 million numbers of 8 bytes each in a hash table, which fits into DuckDB's
	// own 512 MB.
	const large = "SELECT key, (SELECT count(*) FROM (SELECT DISTINCT range + length(value) FROM range(8000000))) AS value FROM src"
	record := []endpoint.Record{{Key: "a", Value: []byte("x")}}
	flow := func(query string) *Flow {
		f, err := Compile(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	small := flow("SELECT key, value FROM src")
	var all []*Flow
	for range 4 {
		all = append(all, flow(large))
	}
	done := make(chan struct{})
	var highest uint64
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			together.Lock()
			var sum uint64
			for p := range together.all {
				sum += p.allocated()
			}
			together.Unlock()
			highest = max(highest, sum)
		}
	})
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() { _, _, errs[i] = f.RunBatch(t.Context(), "", record) })
	}
	for range 20 {
		if rows, _, err := small.RunBatch(t.Context(), "", record); err != nil || text(rows) != "a=x" {
			t.Errorf("the small flow: %q, %v", text(rows), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	running.Wait()
	close(done)
	looking.Wait()
	ended := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if ended++; !strings.Contains(err.Error(), "all flows together took more than the 256 MiB") ||
			exactlyonce.KindOf(err) != exactlyonce.Wrong {
			t.Errorf("a large flow: %v", err)
		}
	}
	t.Logf("%d of %d large flows ended; all together had %d MiB at most", ended, len(all), highest>>20)
	if ended == 0 {
		t.Error("nothing was ended: this shows nothing")
	}
	if highest > most+slack {
		t.Errorf("all together had %d MiB, and may have %d", highest>>20, most>>20)
	}
}
