package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/streamload"
	"github.com/netcraq/netcraq/internal/testutil/loadtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// serving starts the server, and returns the URL of the server.
func serving(t *testing.T, storage string, bytes int64) string {
	ctx, stop := context.WithCancel(t.Context())
	said, out := io.Pipe()
	served := make(chan error, 1)
	s := server{dir: t.TempDir(), storage: storage, partitions: 2, bytes: bytes}
	go func() {
		err := s.run(ctx, out)
		out.CloseWithError(err)
		served <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	text, err := bufio.NewReader(said).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(text), "ready ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", text, err)
	}
	return url
}

// TestLoads checks, for each interface and each kind of work, that consumers get each published
// record exactly once. The streams are small, so that JetStream refuses records of the producer
// while consumers lag.
func TestLoads(t *testing.T) {
	for _, storage := range []string{"memory", "file"} {
		for i, way := range []string{"messages", "fetch", "push"} {
			work := []string{"count", "filter", "windows"}[i]
			t.Run(storage+" "+way+" "+work, func(t *testing.T) {
				url := serving(t, storage, 256<<10)
				reads := consumer{url: url, name: "c", partitions: []int{0, 1}, way: way, work: work, batch: 16 << 10}
				r := loadtest.Start(t, reads.run)
				writes := producer{url: url, partitions: []int{0, 1}, chunk: 4096, record: 100}
				p := loadtest.Start(t, writes.run)
				r.Say()
				p.Say()
				var m streamload.Mark
				poll.Until(t, loadtest.Patience, "records to be read", func() bool {
					m = r.Mark()
					return m.Records >= 2000 && m.Found > 0
				})
				p.End()
				if m.At <= 0 || m.CPU <= 0 || m.Bytes != 100*m.Records {
					t.Errorf("%+v", m)
				}
				appended := writes.Mark().Records
				poll.Until(t, loadtest.Patience, "all to be read", func() bool { return r.Mark().Records >= appended })
				if m = r.Mark(); m.Missed != 0 {
					t.Errorf("%+v", m)
				}
				r.End()
			})
		}
	}
}

// TestFull checks that the producer publishes records again that a full stream has refused.
func TestFull(t *testing.T) {
	url := serving(t, "memory", 32<<10)
	reads := consumer{url: url, name: "c", partitions: []int{0, 1}, way: "messages", work: "count", batch: 1024}
	r := loadtest.Start(t, reads.run)
	writes := producer{url: url, partitions: []int{0, 1}, chunk: 16 << 10, record: 100}
	p := loadtest.Start(t, writes.run)
	p.Say()
	poll.Until(t, loadtest.Patience, "the producer to be refused", func() bool { return writes.Mark().Missed > 0 })
	if n := writes.Mark().Records; n == 0 || n > 2*(32<<10)/100 {
		t.Errorf("%d records are in two streams of 32 KiB that nobody reads", n)
	}
	r.Say()
	poll.Until(t, loadtest.Patience, "what comes after the consumer has begun", func() bool {
		return r.Mark().Records > 2*(32<<10)/100
	})
	p.End()
	appended := writes.Mark().Records
	poll.Until(t, loadtest.Patience, "all to be read", func() bool { return r.Mark().Records >= appended })
	r.End()
}
