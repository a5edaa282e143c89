package share

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// With an interval, the records between two ticks form a window, which is one batch. Ticks are at
// multiples of the interval since 1970. So the ticks are the same for all workers, and a restart
// does not delay a window.
const (
	// WindowRecords is the maximum number of records of a window, and windowBytes is the maximum
	// size of its keys and values. Further records follow at once as another part of the window.
	WindowRecords = 10000
	windowBytes   = 4 << 20
)

// end is the end of a batch in the ring.
type end struct {
	number   uint64 // number of the record after the batch
	position exactlyonce.Position
	// tick is the tick that ended the batch. If `full` is set, no tick ended the batch, but the
	// batch has the maximum size. Workers take such a batch at once.
	tick int64
	full bool
}

// window collects the records that a session reads until the next tick.
type window struct {
	s     *session
	mu    sync.Mutex
	all   []endpoint.Record
	to    exactlyonce.Position
	bytes int
	timer *time.Timer // runs while the window has records
	over  bool
}

func newWindow(s *session) *window { return &window{s: s} }

// take adds records to the window. They were read up to the given position.
func (w *window) take(records []endpoint.Record, to exactlyonce.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bytes := 0
	for _, r := range records {
		bytes += size(r)
	}
	if len(w.all) > 0 && (len(w.all)+len(records) > WindowRecords || w.bytes+bytes > windowBytes) {
		w.flush(end{full: true})
	}
	w.all, w.to, w.bytes = append(w.all, records...), to, w.bytes+bytes
	if w.timer == nil {
		tick, in := nextTick(time.Now(), w.s.interval)
		w.timer = time.AfterFunc(in, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.timer = nil
			if len(w.all) > 0 && !w.over {
				w.flush(end{tick: tick})
			}
		})
	}
}

// flush moves the records of the window into the ring, as a batch. The caller holds the lock.
func (w *window) flush(e end) {
	e.position = w.to
	w.s.add(w.all, e)
	w.all, w.bytes = nil, 0
}

// close drops the records of the window. The next reader begins where the ring ends.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over = true; w.timer != nil {
		w.timer.Stop()
	}
}

// nextTick returns the number of the next tick, and the time until that tick.
func nextTick(now time.Time, interval time.Duration) (int64, time.Duration) {
	n := now.UnixNano()/int64(interval) + 1
	return n, time.Duration(n*int64(interval) - now.UnixNano())
}

// next returns the batch after a position. The result `here` reports whether the session has that
// position. The worker may already have had a part of the batch that ends with the tick last. next
// ignores batches up to that tick, and returns their remaining records together with the next
// batch. So a worker gets one batch for each tick. gap has the same meaning as for read.
func (s *session) next(ctx context.Context, from exactlyonce.Position, last int64, gap *string) (_ []endpoint.Record,
	e end,
	here bool, err error) {
	for {
		s.mu.Lock()
		changed := s.changed
		at, ok := s.after[from]
		i := slices.IndexFunc(s.ends, func(e end) bool { return e.number > at && (e.full || e.tick > last) })
		switch {
		case ok && i >= 0:
			e := s.ends[i]
			out := s.records[at-s.first : e.number-s.first : e.number-s.first]
			if e.number > s.taken {
				s.taken = e.number
				s.change()
			}
			s.mu.Unlock()
			return out, e, true, nil
		case s.tells(from, gap):
			s.mu.Unlock()
			return nil, end{}, true, nil
		case s.err != nil:
			defer s.mu.Unlock()
			return nil, end{}, true, s.err
		}
		s.mu.Unlock()
		if !ok {
			return nil, end{}, false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, end{}, true, nil
		}
	}
}

// windows is the state of a member that reads windows of an interval.
type windows struct {
	tick int64    // the tick of the window that was written last
	cut  bool     // the window of tick was returned in part, so the next records belong to it, too
	own  *session // a session only for this worker, while the group's session does not have its position
	// The window that was read last is kept, because it may be written in parts and retried.
	from    exactlyonce.Position
	records []endpoint.Record
	end     end
}

// behind returns the records of the kept window that follow a position. It reports whether the
// position is in the window.
func (w *windows) behind(from exactlyonce.Position) ([]endpoint.Record, bool) {
	if len(w.records) == 0 {
		return nil, false
	}
	if from == w.from {
		return w.records, true
	}
	for i := len(w.records) - 1; i >= 0; i-- {
		if w.records[i].At == from {
			return w.records[i+1:], true
		}
	}
	return nil, false
}

// readWindow does what Read does if there is an interval. It returns a complete window if the
// window has at most n records.
func (m *Member) readWindow(ctx context.Context, from exactlyonce.Position, n int) (out []endpoint.Record,
	to exactlyonce.Position,
	err error) {
	w := &m.windows
	left, in := w.behind(from)
	switch {
	case in && len(left) == 0: // all records of the window were written
		if w.cut = w.end.full; !w.cut {
			w.tick = w.end.tick
		}
		w.records = nil
	case !in && len(w.records) > 0: // the position of the worker is no longer in the window
		w.records, w.cut = nil, false
	}
	if len(left) == 0 {
		if left, err = m.nextWindow(ctx, from); err != nil || len(left) == 0 {
			return nil, from, err
		}
	}
	out = left[:min(n, len(left)):min(n, len(left))]
	m.part = m.query != "" && (w.cut || w.end.full || len(out) < len(w.records))
	return out, out[len(out)-1].At, nil
}

// nextWindow reads the window after a position from the group's session. If that session does not
// have the position, nextWindow uses a session only for this worker.
func (m *Member) nextWindow(ctx context.Context, from exactlyonce.Position) ([]endpoint.Record, error) {
	w := &m.windows
	records, e, here, err := m.group.at(from).next(ctx, from, w.tick, &m.gap)
	if here {
		m.rejoin()
	} else {
		if w.own == nil || !w.own.has(from) {
			m.rejoin()
			w.own = newSession(from, m.group.interval)
		}
		w.own.start(m.group.open, m.group.chunk())
		records, e, _, err = w.own.next(ctx, from, w.tick, &m.gap)
		m.Own += uint64(len(records))
	}
	if err != nil || len(records) == 0 {
		return nil, err
	}
	w.from, w.records, w.end = from, records, e
	return records, nil
}

// rejoin ends the separate session of this worker, if there is one.
func (m *Member) rejoin() {
	if w := &m.windows; w.own != nil {
		w.own.stop()
		w.own = nil
	}
}

// has reports whether the session has the given position.
func (s *session) has(from exactlyonce.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.after[from]
	return ok
}
