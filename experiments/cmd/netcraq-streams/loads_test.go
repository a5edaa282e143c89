package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/poll"
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
		l.t.Fatal(err)
	}
}

func (l *load) mark() (m mark) {
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

// TestLoads: by each way, and with each work, consumers get what a producer appends.
func TestLoads(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	said, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, socket, "", out) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if text, err := bufio.NewReader(said).ReadString('\n'); text != "ready\n" {
		t.Fatalf("%q, %v", text, err)
	}
	c, err := node.Connect(t.Context(), node.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, way := range []string{"push", "pull", "compact"} {
		for _, work := range []string{"count", "filter", "words", "windows"} {
			t.Run(way+" "+work, func(t *testing.T) {
				stream := way + "-" + work
				if _, err := c.OpenStream(t.Context(), stream, &api.StreamConfig{Partitions: 2}); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := c.DeleteStream(t.Context(), stream); err != nil {
						t.Error(err)
					}
				}()
				reads := consumer{socket: socket, stream: stream, name: "c", partitions: []int{0, 1}, way: way, work: work,
					batch: 16 << 10}
				r := start(t, reads.run)
				writes := producer{socket: socket, stream: stream, partitions: []int{0, 1}, chunk: 4096, record: 100}
				p := start(t, writes.run)
				r.say()
				p.say()
				var m mark
				poll.Until(t, patience, "records to be read", func() bool {
					m = r.mark()
					return m.Records >= 500 && m.Found > 0
				})
				p.end()
				if m.At <= 0 || m.CPU <= 0 || m.Missed != 0 || m.Bytes != 100*m.Records {
					t.Errorf("%+v", m)
				}
				appended := writes.records.Load()
				poll.Until(t, patience, "all to be read", func() bool { return r.mark().Records >= appended })
				r.end()
			})
		}
	}
}

// TestWindows: what is counted in a window is of its seconds, and of no others.
func TestWindows(t *testing.T) {
	var w windows
	for second, text := range []string{"", "a b", "a", "", "", "c", "d", "", "", "", "", "", "", "", "e"} {
		if text != "" {
			w.add([]byte(text), int64(second))
		}
	}
	// Of 5 s that end before second 14 there is second 6 no more.
	if len(w.emitted) != 2 && w.emitted["d"] != 1 {
		t.Errorf("%v", w.emitted)
	}
}
