package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Progress describes how far a worker has got.
type Progress struct {
	Src, Dst  int
	Condition exactlyonce.Condition
	State     exactlyonce.State // the destination's last known state
	Written   uint64            // number of records that the worker has read and written since it began
	Behind    time.Time         // since when there have been unwritten records; zero if there are none
	LastError string            // the last error, even if the worker has recovered from it
}

// worker copies records from one source to one destination of a pipelet.
type worker struct {
	Src, Dst int
	log      *slog.Logger
	changed  func()

	mu sync.Mutex
	p  Progress
}

// Progress returns the worker's progress.
func (w *worker) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.p
}

// is sets the condition of the worker, and reports a change.
func (w *worker) is(c exactlyonce.Condition) {
	w.mu.Lock()
	was := w.p.Condition
	w.p.Condition = c
	if c.Message != "" && !c.Ready {
		w.p.LastError = c.Message
	}
	if !c.Ready && w.p.Behind.IsZero() {
		w.p.Behind = time.Now()
	}
	rows := w.p.State.Rows
	w.mu.Unlock()
	if c != was {
		level := slog.LevelInfo
		if !c.Ready && c.Message != "" {
			level = slog.LevelWarn
		}
		w.log.Log(context.Background(), level, "condition", "ready", c.Ready, "reason", c.Reason, "message", c.Message, "rows", rows)
		w.changed()
	}
}

// did updates the progress after an action of the worker.
func (w *worker) did(a exactlyonce.Action, r exactlyonce.Result, m *exactlyonce.Machine, records int) {
	w.mu.Lock()
	w.p.State = m.Known()
	switch {
	case r.Err != nil || a.Do == exactlyonce.Wait:
	case a.Do == exactlyonce.Read && r.Records > 0 && w.p.Behind.IsZero():
		w.p.Behind = time.Now()
	case a.Do == exactlyonce.Commit:
		w.p.Written += uint64(records)
		w.p.Behind = time.Time{}
	case a.Do == exactlyonce.Read && r.Records == 0, a.Do == exactlyonce.Open && m.Condition().Ready:
		w.p.Behind = time.Time{}
	}
	w.mu.Unlock()
	w.is(m.Condition())
}
