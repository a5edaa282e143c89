// Package streamload is what loads of streams have in common, whatever keeps the streams: what they
// count, what records they write, and what they do with those that they read.
package streamload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Meter counts what a load does.
type Meter struct {
	Records, Bytes, Found, Missed atomic.Uint64
}

// Mark is what a load has done so far.
type Mark struct {
	At      int64   `json:"at_ns"` // of the machine's monotonic clock
	Records uint64  `json:"records"`
	Bytes   uint64  `json:"bytes"`
	Found   uint64  `json:"found"` // what its work has found: matches, words
	Missed  uint64  `json:"missed"`
	CPU     float64 `json:"cpu_us"` // of this process
}

func (m *Meter) mark() Mark {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return Mark{At: now.Nano(), Records: m.Records.Load(), Bytes: m.Bytes.Load(), Found: m.Found.Load(),
		Missed: m.Missed.Load(), CPU: processTime()}
}

// processTime is what this process has used of the processors, in microseconds.
func processTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// Serve has work done from the first line of in on, and answers each further line with a mark. It
// ends with in, or when the work fails.
func (m *Meter) Serve(ctx context.Context, in io.Reader, out io.Writer, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	fmt.Fprintln(out, "ready")
	var done chan error
	for {
		select {
		case _, ok := <-lines:
			switch {
			case !ok || ctx.Err() != nil:
				cancel()
				if done != nil {
					<-done // it uses what the caller is about to close
				}
				return nil
			case done == nil:
				done = make(chan error, 1)
				go func() { done <- work(ctx) }()
			default:
				_ = json.NewEncoder(out).Encode(m.mark()) // if nobody reads it, the input ends, too
			}
		case err := <-done:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ctx.Done():
			if done != nil {
				<-done
			}
			return nil
		}
	}
}
