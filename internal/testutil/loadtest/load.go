// Package loadtest runs loads of internal/streamload inside test processes.
package loadtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/streamload"
)

// Patience is how long a test waits for a load.
const Patience = time.Minute

// Load is a load that runs in this process.
type Load struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

// Start starts a load, and waits until it is ready.
func Start(t *testing.T, run func(context.Context, io.Reader, io.Writer) error) *Load {
	in, write := io.Pipe()
	read, out := io.Pipe()
	l := &Load{t: t, in: write, out: bufio.NewReader(read), ended: make(chan error, 1)}
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

// Say writes a line to the load's input.
func (l *Load) Say() {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.in); err != nil {
		l.t.Fatalf("the load has ended: %v", <-l.ended)
	}
}

// Mark requests the load's current counters.
func (l *Load) Mark() (m streamload.Mark) {
	l.t.Helper()
	l.Say()
	text, err := l.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// End closes the load's input, and waits until the load ends.
func (l *Load) End() {
	l.t.Helper()
	l.in.Close()
	select {
	case err := <-l.ended:
		if err != nil {
			l.t.Error(err)
		}
	case <-time.After(Patience):
		l.t.Fatal("a load does not end with its input")
	}
}
