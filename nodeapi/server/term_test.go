package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

func newTerm(parent context.Context, d time.Duration) (*term, *atomic.Int32) {
	n := new(atomic.Int32)
	return &term{parent: parent, deadline: time.Now().Add(d), waits: func() { n.Add(1) }}, n
}

// TestTerm checks that a term ends like any context, whether or not Done is called. It must call
// waits once, when Done is first called.
func TestTerm(t *testing.T) {
	over := func(t *testing.T, c context.Context, want error) {
		t.Helper()
		poll.Until(t, soon, "its end", func() bool { return c.Err() != nil })
		if !errors.Is(c.Err(), want) {
			t.Errorf("it ended with %v, want %v", c.Err(), want)
		}
		select {
		case <-c.Done():
		case <-time.After(soon):
			t.Error("Done is not closed")
		}
		if !errors.Is(c.Err(), want) {
			t.Errorf("then it had ended with %v, want %v", c.Err(), want)
		}
	}
	parent, cancel := context.WithCancel(t.Context())
	cancel()
	for _, waits := range []bool{false, true} {
		for _, c := range []struct {
			name   string
			parent context.Context
			d      time.Duration
			end    bool
			want   error
		}{
			{"canceled", t.Context(), time.Hour, true, context.Canceled},
			{"its parent ended", parent, time.Hour, false, context.Canceled},
			{"its time is over", t.Context(), 5 * time.Millisecond, false, context.DeadlineExceeded},
		} {
			t.Run(fmt.Sprintf("%s/%v", c.name, waits), func(t *testing.T) {
				m, n := newTerm(c.parent, c.d)
				if waits {
					_ = m.Done()
				}
				if c.end {
					m.end()
				}
				over(t, m, c.want)
				_ = m.Done()
				if n.Load() != 1 {
					t.Errorf("it was said %d times that somebody waits", n.Load())
				}
			})
		}
	}
	t.Run("of others", func(t *testing.T) {
		m, _ := newTerm(t.Context(), time.Hour)
		below, cancel := context.WithCancel(context.WithValue(m, t, 1)) //nolint:staticcheck // any key
		defer cancel()
		if below.Err() != nil || below.Value(t) != 1 {
			t.Error(below.Err(), below.Value(t))
		}
		m.end()
		over(t, below, context.Canceled)
	})
}

// TestWhatWaitsHoldsUpNobody checks that a waiting request does not delay other requests of its
// connection, or its own cancellation. This must hold for every function that the reading goroutine
// executes.
func TestWhatWaitsHoldsUpNobody(t *testing.T) {
	hold := make(chan struct{})
	slow := &slowStore{Store: store.NewMemory(1024 + cell.Plain.Overhead()), hold: hold}
	_, path := start(t, Config{Store: slow})
	l := dial(t, path)
	for n, request := range []string{
		`"func":"get","data":{"key":"slow"}`,
		`"func":"put","data":{"key":"slow","value":"v"}`,
		`"func":"increment","data":{"key":"slow"}`,
	} {
		l.send(fmt.Sprintf(`{"id":%d,%s}`, 10+n, request))
		poll.Until(t, soon, "it to wait", func() bool { return slow.waiting.Load() == 1 })
		l.ask(`{"id":1,"func":"get","data":{"key":"k"}}`, `{"id":1,"data":{"key":"k","found":false,"version":"0.0"}}`)
		l.send(fmt.Sprintf(`{"id":2,"func":"cancel","data":{"id":%d}}`, 10+n))
		l.expectAll(`{"id":2,"data":{}}`, fmt.Sprintf(`{"id":%d,"error":`, 10+n))
	}
	close(hold)
}

// TestAnswersAreReadLate checks that a client that sends many requests before it reads the first
// answer gets all answers. The server must continue to read, up to a limit, without waiting for the
// client.
func TestAnswersAreReadLate(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	value := strings.Repeat("v", 900)
	l.ask(`{"id":1,"func":"put","data":{"key":"k","value":"`+value+`"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	const many = 450 // more requests than have answers that fit into a socket's buffer, but fewer than the limit
	var all strings.Builder
	for n := range many {
		fmt.Fprintf(&all, `{"id":%d,"func":"get","data":{"key":"k"}}%s`, n+1, strings.Repeat(" ", 1000)+"\n")
	}
	if _, err := l.Write([]byte(all.String())); err != nil {
		t.Fatal(err)
	}
	for n := range many {
		if got := l.receive(); !strings.Contains(got, value) {
			t.Fatalf("answer %d is %.100s", n, got)
		}
	}
}
