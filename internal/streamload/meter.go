// Package streamload has the common parts of load generators for different stream systems: their
// counters, the records that they write, and their work on records.
package streamload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Meter counts the progress of a load.
type Meter struct {
	mu                     sync.Mutex
	records, bytes, missed uint64
	found                  atomic.Uint64
}

// Add adds records, their bytes, and missed records to the counters. It is atomic: a mark contains
// all three or none of them.
func (m *Meter) Add(records, bytes, missed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records += records
	m.bytes += bytes
	m.missed += missed
}

// Mark is a snapshot of a load's counters.
type Mark struct {
	At      int64   `json:"at_ns"` // time on the machine's monotonic clock, in nanoseconds
	Records uint64  `json:"records"`
	Bytes   uint64  `json:"bytes"`
	Found   uint64  `json:"found"` // number of results of the work, such as matches or words
	Missed  uint64  `json:"missed"`
	CPU     float64 `json:"cpu_us"` // processor time of this process in microseconds
}

// Mark returns the current counters.
func (m *Meter) Mark() Mark {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return Mark{At: now.Nano(), Records: m.records, Bytes: m.bytes, Found: m.found.Load(), Missed: m.missed,
		CPU: processTime()}
}

// processTime returns the processor time of this process, in microseconds.
func processTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

// Usage describes the protocol of a program that calls Serve, for its help.
const Usage = ` It says "ready" when it can begin, begins after a line on its input, answers each
further line with what it has done so far, as JSON, and ends with its input.`

// Serve starts work after the first line of in, and answers each further line with a mark. It ends
// when in ends, or when the work fails.
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
					<-done // wait, because work uses resources that the caller is about to close
				}
				return nil
			case done == nil:
				done = make(chan error, 1)
				go func() { done <- work(ctx) }()
			default:
				_ = json.NewEncoder(out).Encode(m.Mark()) // if no one reads the output, the input ends, too
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
