package streams_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// held counts the file descriptors and the mappings of this process. The process has the server and
// all consumers.
func held(t *testing.T) (descriptors, mappings int) {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return len(all), strings.Count(string(text), "netcraq-")
}

// memory counts the memory files that this process has mapped, each file once. A file is a segment
// or a cursor page.
func memory(t *testing.T) (segments, pages int) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Error(err)
		return
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // The fields are range, rights, offset, device, inode and name.
		if len(f) < 6 || seen[f[4]] || !strings.Contains(f[5], "memfd:netcraq-") {
			continue
		}
		seen[f[4]] = true
		if strings.Contains(f[5], "memfd:netcraq-stream") {
			segments++
		} else {
			pages++
		}
	}
	return segments, pages
}

// In TestCrowd, 50 consumers come and go while records are appended to two partitions. Some
// consumers end without closing, and some stop reading. Each consumer must get its records in order
// and without a gap, and must not delay another consumer. When the consumers have ended, no memory
// of them may remain. There is always one segment for each partition, and at most one cursor page
// for each subscription.
func TestCrowd(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	const stall = 100 // milliseconds
	config := &nodeapi.StreamConfig{Partitions: 2, ObjectBytes: 4096, Objects: 8, StallMillis: stall, KeepMillis: stall}
	if _, err := c.OpenStream(ctx, "s", config); err != nil {
		t.Fatal(err)
	}
	descriptors, mappings := held(t)
	ctx, cancel := context.WithCancel(ctx)
	var appended [2]atomic.Uint64
	var producers, consumers sync.WaitGroup
	for n := range 2 {
		producers.Go(func() {
			for ctx.Err() == nil {
				d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: "s"}, Partition: n}
				for i := range 10 {
					number := binary.LittleEndian.AppendUint64(nil, appended[n].Load()+uint64(i))
					d.Records = append(d.Records, nodeapi.RecordData{ValueBase64: append(number, make([]byte, 50)...)})
				}
				a, err := c.Append(ctx, d)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("partition %d: %v", n, err)
					return
				}
				appended[n].Add(uint64(a.Appended))
			}
		})
	}
	var read, moved atomic.Uint64
	begin := time.Now()
	for i := range 50 {
		consumers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for time.Since(begin) < 2*time.Second {
				cfg := streams.Config{Socket: w.socket, Stream: "s", Skip: random.IntN(4) == 0}
				if random.IntN(2) == 0 {
					cfg.Consumer = fmt.Sprintf("consumer%d", i)
				}
				r, err := streams.Open(ctx, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				next := map[int]uint64{}
				for range random.IntN(30) {
					b, err := r.Next(ctx)
					if err != nil {
						t.Error(err)
						break
					}
					if was, ok := next[b.Partition]; ok && b.Offset != was+b.Missed {
						t.Errorf("%d came behind %d, and %d were missed", b.Offset, was, b.Missed)
					}
					if b.Missed > 0 {
						moved.Add(1)
					}
					bad := ""
					for offset, record := range b.Records() {
						if number := binary.LittleEndian.Uint64(record.Data); number != offset {
							bad = fmt.Sprintf("record %d is %d", offset, number)
						}
						read.Add(1)
					}
					if i%10 == 0 && random.IntN(10) == 0 {
						// This consumer does not read for a while.
						time.Sleep(2 * stall * time.Millisecond)
					}
					if next[b.Partition] = b.Next; b.Release() != nil {
						// The batch was overwritten, so it does not count.
						next[b.Partition] = b.Offset
						moved.Add(1)
					} else if bad != "" {
						t.Error(bad)
					}
				}
				r.Close()
			}
		})
	}
	gone := make(chan struct{})
	go func() { consumers.Wait(); close(gone) }()
	most := 0
	for busy := true; busy; {
		segments, pages := memory(t)
		most = max(most, pages)
		if segments != 2 || pages > 256 {
			t.Errorf("%d segments and %d cursor pages at a time, for two partitions and 50 consumers", segments, pages)
			break
		}
		select {
		case <-gone:
			busy = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	<-gone
	cancel()
	producers.Wait()
	t.Logf("%d subscriptions at a time, at most", most)
	if most == 0 {
		t.Error("nobody has ever subscribed")
	}
	t.Logf("%d and %d were appended, %d read, %d times somebody was moved on", appended[0].Load(), appended[1].Load(),
		read.Load(), moved.Load())
	if appended[0].Load() == 0 || appended[1].Load() == 0 || read.Load() == 0 {
		t.Error("nothing came through")
	}
	poll.Until(t, patience, "what consumers held to be given back", func() bool {
		d, m := held(t)
		return d <= descriptors && m <= mappings
	}, func() string {
		d, m := held(t)
		return fmt.Sprintf("%d descriptors, %d before; %d mappings, %d before", d, descriptors, m, mappings)
	})
}
