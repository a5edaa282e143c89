package broker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/streams/ledger"
	"github.com/netcraq/netcraq/streams/source"
)

// filling is the running source of a stream.
type filling struct {
	from source.Source
	stop context.CancelFunc
	done chan struct{} // closed when the source has ended

	mu    sync.Mutex
	notes []source.Note // the sources' notes, by partition
}

// These are the pauses between the end of a source and its next run. The first pause applies after
// a run that has appended records, or has lasted for a while.
const (
	firstPause = time.Second
	lastPause  = 5 * time.Second
)

// endOfSource is how long a stream that ends waits for its source to end. If the source does not
// end in time, the stream no longer waits for it, and the source can no longer append.
const endOfSource = 3 * time.Second

const notesName = "source.json"

// source makes the source for a stream of a namespace.
func (b *Broker) source(namespace string, c *nodeapi.StreamSource) (source.Source, error) {
	if b.o.Sources == nil {
		return nil, invalid("this server has no sources of streams")
	}
	return b.o.Sources(namespace, *c)
}

// fill runs the stream's source, once for each partition.
func (s *Stream) fill(from source.Source) {
	ctx, stop := context.WithCancel(context.Background())
	f := &filling{from: from, stop: stop, done: make(chan struct{}), notes: s.readNotes()}
	s.filling = f
	var all sync.WaitGroup
	for _, p := range s.partitions {
		all.Go(func() { s.fillOne(ctx, from, p) })
	}
	go func() {
		all.Wait()
		close(f.done)
	}()
}

func (s *Stream) fillOne(ctx context.Context, from source.Source, p *partition) {
	pause := firstPause
	for {
		to := &sink{s: s, p: p}
		before, began := to.Place().Next, time.Now()
		err := from.Run(ctx, to)
		if ctx.Err() != nil {
			return
		}
		if to.Place().Next != before || time.Since(began) > 2*lastPause {
			pause = firstPause
		}
		s.b.counters.failures.Add(1)
		s.b.log.Warn("a stream's source ended, and is run again", "namespace", s.Namespace, "stream", s.Name,
			"partition", p.number, "in", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// Keep passes a program's records to the origin of the stream's source, which stores them. It
// returns an error if the source does not support that.
func (s *Stream) Keep(ctx context.Context, entries []source.Entry) ([]uint64, error) {
	if s.filling == nil {
		return nil, nodeapi.Errorf(nodeapi.CodeUnavailable, "look into the server's log", "the stream's source is not run")
	}
	to, ok := s.filling.from.(source.Keeper)
	if !ok {
		return nil, errFilled(s.Name)
	}
	// reject a record that is too large, because the origin would store it but it could never be
	// appended to the stream
	for _, e := range entries {
		if len(e.Data) > stream.MaxRecord(s.Config.ObjectBytes) {
			return nil, errLarge(len(e.Data), s.Config.ObjectBytes)
		}
	}
	return to.Keep(ctx, entries)
}

// wait waits until a source that was told to stop has ended.
func (f *filling) wait(s *Stream) {
	t := time.NewTimer(endOfSource)
	defer t.Stop()
	select {
	case <-f.done:
	case <-t.C:
		s.b.log.Error("a stream's source does not end, and is left alone", "namespace", s.Namespace, "stream", s.Name)
	}
}

func (s *Stream) readNotes() []source.Note {
	notes := make([]source.Note, len(s.partitions))
	if s.dir == "" {
		return notes
	}
	text, err := os.ReadFile(filepath.Join(s.dir, notesName))
	var had []source.Note
	if err == nil {
		err = json.Unmarshal(text, &had)
	}
	if err == nil && len(had) == len(notes) {
		return had
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.b.log.Error("what a stream's source had noted is lost", "namespace", s.Namespace, "stream", s.Name, "error", err)
	}
	return notes
}

// sink gives a source access to one partition.
type sink struct {
	s *Stream
	p *partition
}

var _ source.Sink = (*sink)(nil)

func (k *sink) Partition() (n, of int) { return k.p.number, len(k.s.partitions) }

func (k *sink) MaxRecord() int { return stream.MaxRecord(k.s.Config.ObjectBytes) }

// each calls tell with each existing record. During the call nothing changes, and the memory stays
// mapped.
func (k *sink) each(tell func(stream.Record)) {
	if k.p.ended != nil {
		return
	}
	oldest, _ := k.p.ring.Oldest()
	for n := oldest; n < k.p.shared.Begun(); n++ {
		o, ok := k.p.shared.Object(n)
		for at := 0; ok; {
			var r stream.Record
			if r, at, ok = o.Next(at); ok {
				tell(r)
			}
		}
	}
}

func (k *sink) Had(tell func(stream.Record)) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.each(tell)
}

func (k *sink) Place() (at source.Place) {
	f := k.s.filling
	f.mu.Lock()
	at.Note = f.notes[k.p.number]
	f.mu.Unlock()
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	at.Next, at.Mark = k.p.ring.Next(), k.p.newest
	return at
}

func (k *sink) Note(n source.Note) error {
	k.s.b.saving.Lock()
	defer k.s.b.saving.Unlock()
	f := k.s.filling
	f.mu.Lock()
	notes := append([]source.Note(nil), f.notes...)
	f.mu.Unlock()
	if notes[k.p.number] == n {
		return nil
	}
	notes[k.p.number] = n
	if k.s.dropped {
		return noStream(k.s.Name)
	}
	if k.s.dir != "" {
		if err := writeJSON(filepath.Join(k.s.dir, notesName), notes); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.notes = notes
	f.mu.Unlock()
	return nil
}

// These are limits for the records that a source appends before it gives way to other users of the
// partition.
const (
	atOnce      = 256
	bytesAtOnce = 256 << 10
)

func (k *sink) Append(ctx context.Context, records []stream.Record) error {
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < min(len(records), atOnce) && (n == 0 || bytes+len(records[n].Data) <= bytesAtOnce) {
			bytes += len(records[n].Data)
			n++
		}
		_, done, err := k.s.append(ctx, k.p.number, records[:n], nil, nil)
		if err != nil {
			return err
		}
		records = records[done:]
	}
	return ctx.Err()
}

func (k *sink) Missed(n uint64) {
	k.s.b.counters.missed.Add(n)
	k.s.b.log.Warn("a stream's source could not tell all that was", "namespace", k.s.Namespace, "stream", k.s.Name,
		"partition", k.p.number, "missed", n)
}

// newestMark returns the mark of the newest record.
func newestMark(s *stream.Segment, ring *ledger.Ring) (mark uint64) {
	oldest, _ := ring.Oldest()
	for n := s.Begun(); n > oldest; n-- {
		o, ok := s.Object(n - 1)
		if !ok || o.Count == 0 {
			continue
		}
		for at := 0; ok; {
			var r stream.Record
			if r, at, ok = o.Next(at); ok {
				mark = r.Mark
			}
		}
		return mark
	}
	return 0
}
