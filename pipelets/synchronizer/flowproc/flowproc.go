// Package flowproc runs flows in separate processes.
//
// DuckDB is written in C++. A SELECT or a record can make it overflow its stack, allocate more than
// its memory limit or run past a deadline. A program that imports this package therefore starts
// itself again, as another process, for each [Engine]. That process has limits that the kernel
// enforces (limits.go), and runs package flow. If the process dies, its current flow fails with the
// reason, and the next run starts another process.
//
// All flows of an Engine must belong to the same namespace.
package flowproc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
)

const (
	// maxBatch is the maximum total size of the keys and values in a batch, in bytes.
	maxBatch = 64 << 20
	// firstPause is the pause of a flow that has crashed its process. The pause doubles with each
	// further crash, up to longestPause. During the pause, the flow's worker gets the reason as an
	// error.
	firstPause, longestPause = time.Second, time.Minute
	// idle is the time after which an idle process is ended.
	idle = time.Minute
	// maxFlows is the maximum number of flows that one process compiles. For more flows, another
	// process is started.
	maxFlows = 256
	// maxError is the maximum length, in bytes, of an error's text from a process.
	maxError = 4 << 10
)

// ErrUnavailable means that no process could be started. The flow is not at fault.
var ErrUnavailable = errors.New("no process for flows can be started")

// Engine is a process for the flows of one namespace over one source. Only one user at a time can
// use it.
type Engine struct {
	turn    chan struct{} // has one element while the engine is free
	process *process      // the process; nil until the next use starts a process
	flows   int           // number of flows that the process has compiled
	loaded  string        // name of the batch that the process has; empty if there is none, or if it has no name
	used    time.Time
	timer   *time.Timer // ends the process when it has been idle for a while
	// Loads counts the batches that were sent to the process, and Runs counts the runs of flows.
	Loads, Runs atomic.Uint64
}

// Flow is a compiled SELECT statement.
type Flow struct {
	engine       *Engine
	own          bool
	query, state string
	pause        time.Duration // the last pause; 0 if the last run did not crash the process
	until        time.Time     // when the pause ends
	died         error         // reason for the pause
}

// Open makes an engine. Its process is started on first use.
func Open() *Engine {
	e := &Engine{turn: make(chan struct{}, 1)}
	e.timer = time.AfterFunc(math.MaxInt64, e.rest)
	e.turn <- struct{}{}
	return e
}

// rest ends the process if it is idle.
func (e *Engine) rest() {
	select {
	case <-e.turn:
	default:
		return // the engine is in use, and its user sets the timer again
	}
	if time.Since(e.used) >= idle {
		e.end()
	}
	e.turn <- struct{}{}
}

// end ends the engine's process.
func (e *Engine) end() {
	if e.process != nil {
		e.process.kill()
	}
	e.process, e.loaded = nil, ""
}

// Close ends the engine when its current user has finished.
func (e *Engine) Close() error {
	<-e.turn
	e.timer.Stop()
	e.end()
	return nil
}

// Compile checks a SELECT statement, and starts a separate process for it.
func Compile(ctx context.Context, query string) (*Flow, error) {
	return CompileStateful(ctx, query, "")
}

// CompileStateful does what flow.CompileStateful does, in a separate process.
func CompileStateful(ctx context.Context, query, state string) (*Flow, error) {
	e := Open()
	f, err := e.compile(ctx, query, state)
	if err != nil {
		e.Close()
		return nil, err
	}
	f.own = true
	return f, nil
}

// Compile checks a SELECT statement. Errors contain the position in the statement.
func (e *Engine) Compile(ctx context.Context, query string) (*Flow, error) {
	return e.compile(ctx, query, "")
}

func (e *Engine) compile(ctx context.Context, query, state string) (*Flow, error) {
	f := &Flow{engine: e, query: query, state: state}
	_, err := f.call(ctx, &request{Query: query, State: state, Compile: true}, nil)
	return f, err
}

// Close ends the flow.
func (f *Flow) Close() error {
	if f.own {
		return f.engine.Close()
	}
	return nil
}

// RunBatch does what flow.Flow.RunBatch does. A named batch is sent only once for all flows of an
// engine. If a run crashes the process, took is the time limit.
func (f *Flow) RunBatch(ctx context.Context, name string, records []endpoint.Record) (rows []endpoint.Row,
	took time.Duration, err error) {
	a, err := f.call(ctx, &request{Query: f.query, Batch: name}, records)
	if err == nil {
		rows, err = a.rows()
	}
	return rows, a.Took, err
}

// RunStateful does what flow.Flow.RunStateful does.
func (f *Flow) RunStateful(ctx context.Context, records []endpoint.Record, was exactlyonce.Table) (rows []endpoint.Row,
	next exactlyonce.Table, err error) {
	a, err := f.call(ctx, &request{Query: f.query, State: f.state, Was: was}, records)
	if err != nil {
		return nil, "", err
	}
	rows, err = a.rows()
	return rows, a.Next, err
}

// call makes the process execute a request. It starts a process if there is none. If call returns
// an error, only Took is set in the answer.
func (f *Flow) call(ctx context.Context, q *request, records []endpoint.Record) (answer, error) {
	e := f.engine
	size := 0
	for _, r := range records {
		size += len(r.Key) + len(r.Value)
	}
	switch {
	case size > maxBatch && len(records) > 1:
		return answer{}, exactlyonce.Errorf(exactlyonce.TooLarge, "the batch has more than the %d MiB that a flow takes", maxBatch>>20)
	case size > maxBatch:
		return answer{}, exactlyonce.Errorf(exactlyonce.Wrong, "the flow: the record %.64q has more than the %d MiB that a flow takes: have "+
			"the source leave it out", records[0].Key, maxBatch>>20)
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	defer func() {
		e.used = time.Now()
		e.timer.Reset(idle)
		e.turn <- struct{}{}
	}()
	if time.Now().Before(f.until) {
		return answer{}, f.died
	}
	if e.process != nil && (e.process.ended() || q.Compile && e.flows >= maxFlows) {
		e.end()
	}
	limit := flow.RunTime
	if q.Compile {
		limit = flow.CompileTime
	} else {
		e.Runs.Add(1)
	}
	has := q.Batch != "" && e.loaded == q.Batch
	e.loaded = ""
	for fresh := false; ; {
		if e.process == nil {
			p, err := start(ctx)
			if err != nil {
				return answer{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
			e.process, e.flows, fresh, has = p, 0, true, false
		}
		switch {
		case q.Compile:
			e.flows++
		case !has:
			e.Loads.Add(1)
			q.Records, q.Load = toRecords(records), true
		}
		a, died := e.process.call(ctx, q, limit)
		switch {
		case ctx.Err() != nil:
			e.end()
			return answer{}, ctx.Err()
		case !fresh && (errors.Is(died, errMemory) || died == nil && strings.Contains(a.Error, "Out of Memory")):
			e.end() // start a new process, because the old one may lack memory that it kept from earlier batches
			continue
		case died == nil && a.Missing && has:
			has = false
			continue
		case died == nil && a.Missing:
			died = errWire
		}
		if died != nil {
			e.end()
			f.pause = min(max(firstPause, 2*f.pause), longestPause)
			f.until = time.Now().Add(f.pause)
			f.died = exactlyonce.Errorf(exactlyonce.Wrong, "the flow%s: its process ended, because %w. Change the flow, or have it leave "+
				"out such records with a WHERE", within(records), died)
			return answer{Took: limit}, f.died
		}
		f.pause = 0
		if a.Error != "" {
			if a.Kind != exactlyonce.Refused && a.Kind != exactlyonce.Temporary {
				a.Kind = exactlyonce.Wrong
			}
			return answer{Took: a.Took}, exactlyonce.Errorf(a.Kind, "%s", a.Error[:min(len(a.Error), maxError)])
		}
		e.loaded = q.Batch
		return *a, nil
	}
}

// within describes the range of records that contains the record that a flow cannot process.
func within(records []endpoint.Record) string {
	switch n := len(records); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" over the record %.64q", records[0].Key)
	default:
		return fmt.Sprintf(" over the %d records from %.64q to %.64q", n, records[0].Key, records[n-1].Key)
	}
}
