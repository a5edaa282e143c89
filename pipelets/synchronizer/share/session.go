package share

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// idle is the maximum time for which a read of the source waits for records. Then the read returns,
// and the source is checked again.
const idle = 5 * time.Second

// session reads a source from a position, until the source fails or all members have left. It
// numbers the records that it reads from 0 on. It keeps the last batches in a ring.
type session struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	changed chan struct{}                   // closed when one of the fields below changes
	after   map[exactlyonce.Position]uint64 // for the position of each kept record, the number of the next record
	first   uint64                          // number of records[0]
	before  exactlyonce.Position            // position before records[0]
	records []endpoint.Record
	last    exactlyonce.Position // position up to which the source was read
	ends    []end                // the ends of the batches in the field records
	bytes   int
	taken   uint64 // number of the record after the last record that the fastest worker has taken
	running bool
	err     error  // the error that ended the session
	gap     string // describes what is missing in the source after the position last, before the next record

	interval time.Duration // length of windows; 0 means no windows
}

func newSession(from exactlyonce.Position, interval time.Duration) *session {
	s := &session{changed: make(chan struct{}), before: from, last: from,
		after:    map[exactlyonce.Position]uint64{from: 0},
		interval: interval}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *session) stop() { s.cancel() }

// barren reports whether the session ended before it had read anything. The position may be the
// cause, so another worker's position may work.
func (s *session) barren() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil && s.first+uint64(len(s.records)) == 0
}

// start starts reading in a goroutine, unless the session is already reading.
func (s *session) start(open func() (endpoint.Source, error), most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return
	}
	s.running, s.err = true, nil
	go func() {
		err := s.follow(open, most)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running, s.err = false, err
		s.change()
	}()
}

// change wakes all waiting workers. The caller holds s.mu.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// follow reads the source until it fails or the session ends.
func (s *session) follow(open func() (endpoint.Source, error), most int) error {
	source, err := open()
	if err != nil {
		return err
	}
	defer source.Close()
	take := func(records []endpoint.Record, to exactlyonce.Position) {
		s.add(records, end{position: to, full: true})
	}
	if s.interval > 0 {
		w := newWindow(s)
		defer w.close()
		take = w.take
	}
	for at := s.last; ; {
		if err := s.room(); err != nil {
			return err
		}
		until, cancel := context.WithTimeout(s.ctx, idle)
		records, to, err := source.Read(until, at, most)
		cancel()
		switch {
		case s.ctx.Err() != nil:
			return s.ctx.Err()
		case err != nil:
			return err
		case len(records) > 0:
			take(records, to)
			at = to
		default:
			s.lacks(endpoint.Gap(source))
		}
	}
}

// lacks records what is missing in the source before the next record.
func (s *session) lacks(gap string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap != gap {
		s.gap = gap
		s.change()
	}
}

// tells sets gap to the description of what is missing in the source after a position. It reports
// whether this is news to the worker. The caller holds s.mu.
func (s *session) tells(from exactlyonce.Position, gap *string) bool {
	at, ok := s.after[from]
	if !ok || at < s.first+uint64(len(s.records)) {
		return false
	}
	was := *gap
	*gap = s.gap
	return s.gap != "" && s.gap != was
}

// room waits until there are at most half a ring of records that no worker has taken. So the
// session does not read too far ahead of all workers.
func (s *session) room() error {
	for {
		s.mu.Lock()
		ahead := 0
		for _, r := range s.records[s.taken-s.first:] {
			ahead += size(r)
		}
		full := ahead > ringBytes/2 || len(s.records)-int(s.taken-s.first) > ringRecords/2
		changed := s.changed
		s.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

func size(r endpoint.Record) int { return len(r.Key) + len(r.Value) + len(r.At.Sub) }

// add appends a batch to the ring, and drops the oldest batches. It never overwrites records in
// place, so slices that workers hold stay valid.
func (s *session) add(records []endpoint.Record, e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.records = append(s.records, r)
		s.after[r.At] = s.first + uint64(len(s.records))
		s.bytes += size(r)
	}
	s.gap = "" // the first of the new records has the description of the gap
	e.number = s.first + uint64(len(s.records))
	s.last = e.position
	s.after[s.last] = e.number
	s.ends = append(s.ends, e)
	for len(s.ends) > 1 && (s.bytes > ringBytes || len(s.records) > ringRecords) {
		n := int(s.ends[0].number - s.first)
		delete(s.after, s.before)
		for i, r := range s.records[:n] {
			if s.bytes -= size(r); i < n-1 {
				delete(s.after, r.At)
			}
		}
		s.before = s.records[n-1].At
		s.first, s.ends = s.ends[0].number, s.ends[1:]
		s.records = append([]endpoint.Record(nil), s.records[n:]...)
		s.taken = max(s.taken, s.first)
	}
	s.change()
}

// read returns the records after a position. The result `here` reports whether the session has that
// position. A worker that lags gets several batches as one. On entry, gap describes what the worker
// knows to be missing after the position. If something else is missing in the source, read sets gap
// and returns no records.
func (s *session) read(ctx context.Context, from exactlyonce.Position, n int, gap *string) (_ []endpoint.Record,
	to exactlyonce.Position, here bool, err error) {
	for {
		s.mu.Lock()
		changed := s.changed
		at, ok := s.after[from]
		end := s.first + uint64(len(s.records))
		switch {
		case ok && at < end:
			to := min(end, at+uint64(n))
			// return records only up to the end of a batch, so that all workers get the same
			// batches
			for _, e := range s.ends {
				if e.number > at && e.number <= at+uint64(n) {
					to = e.number
				}
			}
			out := s.records[at-s.first : to-s.first : to-s.first]
			if to > s.taken {
				s.taken = to
				s.change()
			}
			s.mu.Unlock()
			return out, out[len(out)-1].At, true, nil
		case s.tells(from, gap):
			s.mu.Unlock()
			return nil, from, true, nil
		case s.err != nil:
			defer s.mu.Unlock()
			return nil, from, true, s.err
		}
		s.mu.Unlock()
		if !ok {
			return nil, from, false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, from, true, nil
		}
	}
}
