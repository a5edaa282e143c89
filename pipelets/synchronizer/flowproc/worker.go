package flowproc

import (
	"context"
	"encoding/gob"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
)

// init runs this program as a process for flows if it was started with the argument verb. This also
// works in test binaries.
func init() {
	if len(os.Args) == 2 && os.Args[1] == verb {
		serve()
	}
}

// worker is the state of a process for flows.
type worker struct {
	engine *flow.Engine
	loaded string
	flows  map[[2]string]*flow.Flow // compiled flows, by query and state
}

// serve executes requests until the parent process closes the socket. It does not return.
func serve() {
	socket := os.NewFile(3, "socket")
	enc := gob.NewEncoder(socket)
	var ready answer
	if err := restrict(); err != nil {
		ready.Error = err.Error()
	}
	if err := enc.Encode(ready); err != nil || ready.Error != "" {
		os.Exit(1)
	}
	// use another goroutine, because the goroutine of init is bound to a thread, which would cost
	// context switches
	go func() {
		w := &worker{flows: map[[2]string]*flow.Flow{}}
		for dec := gob.NewDecoder(socket); ; {
			q, a := &request{}, &answer{}
			if err := dec.Decode(q); err != nil {
				os.Exit(0)
			}
			if err := w.do(q, a); err != nil {
				*a = answer{Kind: exactlyonce.KindOf(err), Error: err.Error(), Took: a.Took}
				w.loaded = ""
			}
			if err := enc.Encode(a); err != nil {
				os.Exit(0)
			}
		}
	}()
	for { // When the parent process has closed the socket, do not wait for a flow that is still running.
		fds := []unix.PollFd{{Fd: int32(socket.Fd()), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			os.Exit(0)
		}
	}
}

// compiled returns the flow of a request. It compiles the flow on first use.
func (w *worker) compiled(ctx context.Context, q *request) (f *flow.Flow, err error) {
	key := [2]string{q.Query, q.State}
	if f = w.flows[key]; f != nil && !q.Compile {
		return f, nil
	}
	w.loaded = ""
	if q.State != "" {
		f, err = flow.CompileStateful(ctx, q.Query, q.State)
	} else {
		if w.engine == nil {
			if w.engine, err = flow.Open(ctx); err != nil {
				return nil, err
			}
		}
		f, err = w.engine.Compile(ctx, q.Query)
	}
	if err != nil {
		return nil, err
	}
	w.flows[key] = f
	return f, nil
}

func (w *worker) do(q *request, a *answer) error {
	ctx := context.Background()
	f, err := w.compiled(ctx, q)
	if err != nil || q.Compile {
		return err
	}
	if !q.Load && (q.Batch == "" || q.Batch != w.loaded) {
		a.Missing = true
		return nil
	}
	records, err := q.Records.all()
	if err != nil {
		return err
	}
	if q.State != "" {
		rows, next, err := f.RunStateful(ctx, records, q.Was)
		a.Next = next
		a.set(rows)
		return err
	}
	rows, took, err := f.RunBatch(ctx, q.Batch, records)
	w.loaded, a.Took = q.Batch, took
	a.set(rows)
	return err
}
