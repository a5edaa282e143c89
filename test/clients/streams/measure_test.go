package streams_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestMeasure measures the latency from an append to its reader, if $NETCRAQ_STREAMS_MEASURE is
// set. The server runs in its own process. The target bench-streams of make measures the throughput
// of reading instead.
func TestMeasure(t *testing.T) {
	if os.Getenv("NETCRAQ_STREAMS_MEASURE") == "" {
		t.Skip("it measures, and takes long: set NETCRAQ_STREAMS_MEASURE")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	server := &process{t: t, role: "server", args: []string{dir}}
	server.start()
	defer server.kill()
	var c *node.Client
	poll.Until(t, patience, "the server to answer", func() (ok bool) {
		var err error
		c, err = node.Connect(t.Context(), node.Config{Socket: socket, Wait: time.Second})
		return err == nil
	})
	defer func() { _ = c.Close(canceled()) }()
	for _, pull := range []bool{false, true} {
		name := map[bool]string{false: "push", true: "pull"}[pull]
		if _, err := c.OpenStream(soon(t), name, &nodeapi.StreamConfig{}); err != nil {
			t.Fatal(err)
		}
		times := latency(t, c, socket, name, pull, strings.Repeat("x", 100))
		t.Logf("from append to reader, 1,000 a second, by %s: p50 %v, p99 %v", name, times[len(times)/2],
			times[len(times)*99/100])
	}
}

// latency measures the time from when the server appends a record to when the reader has it.
func latency(t *testing.T, c *node.Client, socket, name string, pull bool, text string) (times []time.Duration) {
	ctx := soon(t)
	r, err := streams.Open(ctx, streams.Config{Socket: socket, Stream: name, Pull: pull})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const many = 3000
	var producer sync.WaitGroup
	defer producer.Wait()
	producer.Go(func() {
		for range many {
			if _, err := c.Append(ctx, to(name, text)); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	for len(times) < many {
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range b.Records() {
			times = append(times, time.Since(record.Time))
		}
	}
	slices.Sort(times)
	return times
}
