package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/internal/streamload"
)

const patience = time.Minute

// load is one that runs in this process.
type load struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

func start(t *testing.T, run func(context.Context, io.Reader, io.Writer) error) *load {
	in, write := io.Pipe()
	read, out := io.Pipe()
	l := &load{t: t, in: write, out: bufio.NewReader(read), ended: make(chan error, 1)}
	go func() {
		err := run(t.Context(), in, out)
		out.CloseWithError(fmt.Errorf("the load ended: %w", err))
		in.Close()
		l.ended <- err
	}()
	if text, err := l.out.ReadString('\n'); text != "ready\n" {
		t.Fatalf("%q, %v", text, err)
	}
	return l
}

func (l *load) say() {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.in); err != nil {
		l.t.Fatalf("the load has ended: %v", <-l.ended)
	}
}

func (l *load) mark() (m streamload.Mark) {
	l.t.Helper()
	l.say()
	text, err := l.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

func (l *load) end() {
	l.t.Helper()
	l.in.Close()
	select {
	case err := <-l.ended:
		if err != nil {
			l.t.Error(err)
		}
	case <-time.After(patience):
		l.t.Fatal("a load does not end with its input")
	}
}

// serving starts the server, and says where it is.
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

// TestLoads: by each way, and with each work, consumers get what a producer publishes, each record
// once. The streams are small, so that the producer is refused while consumers are behind.
func TestLoads(t *testing.T) {
	for _, storage := range []string{"memory", "file"} {
		for i, way := range []string{"messages", "fetch", "push"} {
			work := []string{"count", "filter", "windows"}[i]
			t.Run(storage+" "+way+" "+work, func(t *testing.T) {
				url := serving(t, storage, 256<<10)
				reads := consumer{url: url, name: "c", partitions: []int{0, 1}, way: way, work: work, batch: 16 << 10}
				r := start(t, reads.run)
				writes := producer{url: url, partitions: []int{0, 1}, chunk: 4096, record: 100}
				p := start(t, writes.run)
				r.say()
				p.say()
				var m streamload.Mark
				poll.Until(t, patience, "records to be read", func() bool {
					m = r.mark()
					return m.Records >= 2000 && m.Found > 0
				})
				p.end()
				if m.At <= 0 || m.CPU <= 0 || m.Bytes != 100*m.Records {
					t.Errorf("%+v", m)
				}
				appended := writes.Records.Load()
				poll.Until(t, patience, "all to be read", func() bool { return r.mark().Records >= appended })
				if m = r.mark(); m.Missed != 0 {
					t.Errorf("%+v", m)
				}
				r.end()
			})
		}
	}
}

// TestFull: a stream that is full takes nothing, and what it has refused it is given again.
func TestFull(t *testing.T) {
	url := serving(t, "memory", 32<<10)
	reads := consumer{url: url, name: "c", partitions: []int{0, 1}, way: "messages", work: "count", batch: 1024}
	r := start(t, reads.run)
	writes := producer{url: url, partitions: []int{0, 1}, chunk: 16 << 10, record: 100}
	p := start(t, writes.run)
	p.say()
	poll.Until(t, patience, "the producer to be refused", func() bool { return writes.Missed.Load() > 0 })
	if n := writes.Records.Load(); n == 0 || n > 2*(32<<10)/100 {
		t.Errorf("%d records are in two streams of 32 KiB that nobody reads", n)
	}
	r.say()
	poll.Until(t, patience, "what comes after the consumer has begun", func() bool {
		return r.mark().Records > 2*(32<<10)/100
	})
	p.end()
	appended := writes.Records.Load()
	poll.Until(t, patience, "all to be read", func() bool { return r.mark().Records >= appended })
	r.end()
}
