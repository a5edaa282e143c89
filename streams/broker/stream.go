package broker

import (
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/streams/files"
	"github.com/netcraq/netcraq/streams/ledger"
	"github.com/netcraq/netcraq/streams/segment"
)

// Stream is one stream of a namespace.
type Stream struct {
	Namespace, Name string
	Incarnation     string
	Config          nodeapi.StreamConfig

	b          *Broker
	dir        string // the stream's folder; empty if the stream is volatile
	partitions []*partition
	saved      []map[string]uint64 // the positions that were last stored
	dropped    bool                // the stream was deleted or drained, so it no longer owns its folder
	filling    *filling            // nil if the stream has no source
}

// State returns the state of each partition.
func (s *Stream) State() (out []nodeapi.PartitionState) {
	for _, p := range s.partitions {
		p.mu.Lock()
		_, oldest := p.ring.Oldest()
		out = append(out, nodeapi.PartitionState{Oldest: oldest, Next: p.ring.Next()})
		p.mu.Unlock()
	}
	return out
}

func (s *Stream) partition(n int) (*partition, error) {
	if n < 0 || n >= len(s.partitions) {
		return nil, invalid("partition %d: the stream has partitions 0 to %d", n, len(s.partitions)-1)
	}
	return s.partitions[n], nil
}

// Append appends as many records to a partition as there is room for until ctx ends. It waits for
// slow consumers according to the stream's Slow setting. It returns the offset of the first record
// and the number of appended records. If that number is 0, it returns an error. If `at` is not nil,
// the first record must get the offset *at. Programs cannot append to a stream with a source. The
// source finds its position by the marks of the records, and readers rely on the source as the
// origin of all records.
func (s *Stream) Append(ctx context.Context, n int, records []stream.Record, at *uint64) (uint64, int, error) {
	return s.AppendWithFiles(ctx, n, records, nil, at)
}

// AppendWithFiles is like Append, for records that refer to files. The stream holds the files of an
// appended record as long as the record exists. The caller must release the files of records that
// were not appended.
func (s *Stream) AppendWithFiles(ctx context.Context, n int, records []stream.Record, pins [][]*files.File,
	at *uint64) (uint64, int, error) {
	if s.Config.Source != nil {
		return 0, 0, errFilled(s.Name)
	}
	if pins != nil && !s.Config.Volatile {
		return 0, 0, invalid("records refer to files in streams that are volatile only, since files are")
	}
	return s.append(ctx, n, records, pins, at)
}

func (s *Stream) append(ctx context.Context, n int, records []stream.Record, pins [][]*files.File,
	at *uint64) (uint64, int, error) {
	p, err := s.partition(n)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range records {
		if len(r.Data) > stream.MaxRecord(s.Config.ObjectBytes) {
			return 0, 0, errLarge(len(r.Data), s.Config.ObjectBytes)
		}
	}
	return p.append(ctx, records, pins, at)
}

// from determines where a reader begins, from the arguments of its request.
func (s *Stream) from(from string, offsets bool, incarnation, name string) (ledger.From, error) {
	if incarnation != "" && incarnation != s.Incarnation {
		return 0, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "begin anew", "the stream is another one of this name: %s, not %s",
			s.Incarnation, incarnation)
	}
	if len(ledger.Bare(name)) > nodeapi.MaxKeyName || !utf8.ValidString(name) {
		return 0, invalid("a consumer's name is UTF-8, of at most %d bytes", nodeapi.MaxKeyName)
	}
	switch {
	case offsets && from != "":
		return 0, invalid("give from or offsets")
	case offsets:
		return ledger.At, nil
	case from == nodeapi.FromKnown:
		return ledger.Known, nil
	case from == nodeapi.FromEarliest:
		return ledger.Earliest, nil
	case from == nodeapi.FromLatest:
		return ledger.Latest, nil
	}
	return 0, invalid("from is %.20q; it is %q, %q, or left out", from, nodeapi.FromEarliest, nodeapi.FromLatest)
}

// Batch is the result of Read.
type Batch struct {
	Offset, Next, Missed uint64
	Records              []stream.Record // copies of the records
}

// OwnName returns the name under which Read and Subscribe know a consumer of an owner. Consumers
// with the same name but different owners are different consumers. A consumer with an empty name
// also has an owner.
func OwnName(owner, consumer string) string { return ledger.Owned(owner, consumer) }

// Read reads records of a partition. It stops after most records, or when fits returns false. If
// there are no records, it waits until ctx ends, which is not an error.
func (s *Stream) Read(ctx context.Context, d *nodeapi.ReadData, most int, fits func(stream.Record) bool) (b Batch,
	err error) {
	var p *partition
	isNew := false
	defer func() {
		// from now on, the unread records of the new consumer are kept, even if this process dies
		if err == nil && isNew {
			// on failure, remove the name, so that the next read tries again to store it
			if err = s.remember(); err != nil {
				p.mu.Lock()
				p.ring.Forget(d.Consumer)
				p.mu.Unlock()
			}
		}
	}()
	p, err = s.partition(d.Partition)
	if err != nil {
		return b, err
	}
	from, err := s.from(d.From, d.Offset != nil, d.Incarnation, d.Consumer)
	if err != nil {
		return b, err
	}
	p.mu.Lock()
	defer p.mu.Unlock() // deferred calls run in reverse order, so p.mu is unlocked before the name is stored
	var want uint64
	switch known, ok := p.ring.Where(d.Consumer); {
	case from == ledger.At:
		want = *d.Offset
	case from == ledger.Latest:
		want = p.ring.Next()
	case from == ledger.Known && ok:
		want = known
	default:
		_, want = p.ring.Oldest()
	}
	for {
		if p.ended != nil {
			return b, p.ended
		}
		start, err := p.ring.Find(want)
		if err != nil {
			return b, asJoin(err)
		}
		if ledger.Bare(d.Consumer) != "" {
			_, known := p.ring.Where(d.Consumer)
			isNew = isNew || !known
			if err := p.ring.Commit(d.Consumer, want, p.clock()); err != nil {
				return b, asJoin(err)
			}
		}
		b = Batch{Offset: start.Offset, Next: start.Offset, Missed: start.Missed}
		if start.Offset < p.ring.Next() {
			// The memory stays mapped while p.mu is held, and copying a batch takes little time.
			b.Records = copyRecords(p.shared, start, most, fits)
			b.Next += uint64(len(b.Records))
			return b, nil
		}
		if ctx.Err() != nil {
			return b, nil
		}
		if p.news == nil {
			p.news = make(chan struct{})
		}
		news := p.news
		p.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		p.mu.Lock()
	}
}

// copyRecords returns copies of the records of a segment, from a position on.
func copyRecords(s *stream.Segment, from ledger.Start, most int, fits func(stream.Record) bool) (out []stream.Record) {
	skip := from.Offset
	for n := from.Object; n < s.Begun(); n++ {
		o, ok := s.Object(n)
		if !ok {
			return out
		}
		offset := o.First
		for at := 0; ; offset++ {
			r, next, ok := o.Next(at)
			if !ok {
				break
			}
			at = next
			if offset < skip {
				continue
			}
			if len(out) == most || !fits(r) {
				return out
			}
			r.Data = append([]byte(nil), r.Data...)
			out = append(out, r)
		}
	}
	return out
}

// asJoin converts an error of a ledger to an error for a client.
func asJoin(err error) error {
	var many ledger.TooMany
	if errors.As(err, &many) {
		return quota("forget names, or wait until what they hold has lapsed", "%v", err)
	}
	return asNode(err)
}

// remember stores the name of a new consumer.
func (s *Stream) remember() error {
	if err := s.save(); err != nil {
		return nodeapi.Errorf(nodeapi.CodeInternal, "look whether the node has room for files",
			"writing down where consumers are: %v", err)
	}
	return nil
}

// end ends a stream that is deleted, or that moves to another process. Consumers and producers get
// the reason as an error.
func (s *Stream) end(why error) {
	if s.filling != nil {
		s.filling.stop()
	}
	for _, p := range s.partitions {
		p.mu.Lock()
		p.ended = why
		p.shared.End()
		seats := slices.Clone(p.seats)
		p.announce()
		p.mu.Unlock()
		for _, seat := range seats {
			seat.sub.stop(why)
		}
	}
	if s.filling != nil {
		s.filling.wait(s)
	}
	// Wait for the running append of each partition, which notices the end. Afterwards nothing is
	// written.
	for _, p := range s.partitions {
		p.turn <- struct{}{}
		<-p.turn
		p.mu.Lock()
		remains := p.free()
		p.mu.Unlock()
		p.letGo()
		s.b.retire(s.Namespace, segmentBytes(s.Config), remains)
	}
}

// Renew copies the records to new memory, and makes all consumers subscribe again. A consumer that
// has lost its right to read then has only the old memory, to which nothing more is written.
func (s *Stream) Renew() {
	for _, p := range s.partitions {
		p.mu.Lock()
		if p.ended != nil {
			p.mu.Unlock()
			continue
		}
		memory, shared, err := newSegment(p.number, s.Config)
		if err == nil {
			oldest, _ := p.ring.Oldest()
			err = copyObjects(shared, p.shared, oldest)
		}
		seats := slices.Clone(p.seats)
		p.shared.End()
		var old *segment.Remains
		if err != nil { // end the stream, because an unauthorized consumer could continue to read it otherwise
			p.ended = nodeapi.Errorf(nodeapi.CodeUnavailable, "look into the server's log", "there is no memory for the stream")
			s.b.log.Error("a partition has no memory", "namespace", s.Namespace, "stream", s.Name, "error", err)
			if memory != nil {
				memory.Close()
			}
		} else {
			old = p.memory.Retire()
			p.memory, p.shared = memory, shared
		}
		p.announce()
		p.mu.Unlock()
		if old != nil {
			s.b.countMore(s.Namespace, segmentBytes(s.Config))
			s.b.retire(s.Namespace, segmentBytes(s.Config), old)
		}
		for _, seat := range seats {
			seat.sub.stop(errMoved)
		}
	}
}
