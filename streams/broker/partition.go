package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/api/stream/futex"
	"github.com/netcraq/netcraq/streams/files"
	"github.com/netcraq/netcraq/streams/ledger"
	"github.com/netcraq/netcraq/streams/segment"
)

// partition is one partition of a stream, with the memory of its ring.
type partition struct {
	number int
	clock  func() int64
	counts *counters
	turn   chan struct{} // holds an element while an append is running; later appends wait in order

	mu     sync.Mutex
	ring   *ledger.Ring
	memory *segment.Memory
	shared *stream.Segment
	kept   *segment.Memory // nil if the partition is volatile
	log    *stream.Segment
	seats  []*seat
	newest uint64                   // mark of the newest record
	news   chan struct{}            // closed when records are appended; nil if no reader waits
	ended  error                    // why appends and reads fail; nil while they can succeed
	pinned map[uint64][]*files.File // the files to which the records of an object refer, by the object's number
	unused []*files.File            // files to which no record refers any longer
}

// seat is a subscription's state in one partition.
type seat struct {
	sub  *Subscription
	cell int
	p    *partition
}

// newSegment makes a segment that consumers can map.
func newSegment(p int, c nodeapi.StreamConfig) (*segment.Memory, *stream.Segment, error) {
	m, err := segment.New("netcraq-stream", stream.SegmentBytes(c.Objects, c.ObjectBytes))
	if err != nil {
		return nil, nil, err
	}
	s, err := stream.Format(m.Bytes, c.Objects, c.ObjectBytes, rand.Uint64(), p)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, s, nil
}

func rules(c nodeapi.StreamConfig, l Limits) ledger.Rules {
	return ledger.Rules{Skip: c.Slow == nodeapi.SlowSkip, Stall: int64(c.StallMillis) * int64(time.Millisecond),
		Keep: int64(c.KeepMillis) * int64(time.Millisecond), Names: l.Names}
}

// room returns the maximum total size of the records in an object, in bytes.
func room(c nodeapi.StreamConfig) int { return c.ObjectBytes - stream.ObjectHeaderBytes }

// newPartition makes a partition. If `there` is true, it restores the partition from the file at
// path. It refuses an incomplete file, because a ring that began again would assign offsets twice.
// If path is empty, the partition is volatile.
func newPartition(number int, c nodeapi.StreamConfig, l Limits, path string, there bool, clock func() int64,
	counts *counters) (_ *partition, err error) {
	p := &partition{number: number, clock: clock, counts: counts, turn: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			p.free().Close()
		}
	}()
	if p.memory, p.shared, err = newSegment(number, c); err != nil {
		return nil, err
	}
	if path == "" {
		p.ring = ledger.New(c.Objects, room(c), rules(c, l))
		return p, nil
	}
	size := stream.SegmentBytes(c.Objects, c.ObjectBytes)
	if !there {
		if p.kept, err = segment.Make(path, size); err != nil {
			return nil, err
		}
		p.ring = ledger.New(c.Objects, room(c), rules(c, l))
		p.log, err = stream.Format(p.kept.Bytes, c.Objects, c.ObjectBytes, 0, number)
		return p, err
	}
	if p.kept, err = segment.Open(path, size); err != nil {
		return nil, err
	}
	if p.log, err = stream.Open(p.kept.Bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.log.Objects() != c.Objects || p.log.ObjectBytes() != c.ObjectBytes {
		return nil, fmt.Errorf("%s: it is not of this stream", path)
	}
	base, next, has, err := contents(p.log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.ring, err = ledger.Restore(c.Objects, room(c), rules(c, l), base, next, has); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.newest = newestMark(p.log, p.ring)
	return p, copyObjects(p.shared, p.log, base)
}

// contents returns the state of a segment, from which a ledger is restored. In a full ring the
// oldest object may be missing, because a writer died while it replaced that object. Any other gap
// means that the segment is damaged, and offsets might be assigned twice.
func contents(s *stream.Segment) (base, next uint64, has []ledger.Held, err error) {
	base = s.Oldest()
	for n := base; n < s.Begun(); n++ {
		o, ok := s.Object(n)
		if !ok && n == s.Oldest() && s.Begun() >= uint64(s.Objects()) {
			base = n + 1
			continue
		}
		if !ok || !whole(&o) || n == 0 && o.First != 0 {
			return 0, 0, nil, fmt.Errorf("object %d of %d is damaged", n, s.Begun())
		}
		has = append(has, ledger.Held{First: o.First, Used: len(o.Bytes), Count: o.Count})
		next = o.First + uint64(o.Count)
	}
	return base, next, has, nil
}

// whole reports whether an object has as many records as its header says, and whether they fill the
// bytes that its header gives.
func whole(o *stream.Object) bool {
	at, count := 0, 0
	for {
		_, next, ok := o.Next(at)
		if !ok {
			return at == len(o.Bytes) && count == o.Count
		}
		at, count = next, count+1
	}
}

// copyObjects copies the objects of one segment, from number base on, to a new segment.
func copyObjects(to, from *stream.Segment, base uint64) error {
	to.Restart(base)
	for n := base; n < from.Begun(); n++ {
		o, ok := from.Object(n)
		if !ok {
			return fmt.Errorf("object %d is not there", n)
		}
		to.Begin(n, o.First)
		to.Fill(n, o.Bytes, o.Count)
	}
	return nil
}

// unpin marks the files for release to which the records of an overwritten object refer. The caller
// holds p.mu.
func (p *partition) unpin(object uint64) {
	p.unused = append(p.unused, p.pinned[object]...)
	delete(p.pinned, object)
}

// letGo releases files to which no record refers any longer. The caller must not hold p.mu, because
// letGo returns memory to the broker.
func (p *partition) letGo() {
	p.mu.Lock()
	unused := p.unused
	p.unused = nil
	p.mu.Unlock()
	for _, f := range unused {
		f.ReleaseRecord()
	}
}

// free releases the partition's memory. Consumers that have mapped the memory can still use it.
func (p *partition) free() (r *segment.Remains) {
	for object := range p.pinned {
		p.unpin(object)
	}
	if p.memory != nil {
		r = p.memory.Retire()
	}
	if p.kept != nil {
		p.kept.Close()
	}
	return r
}

// freedAtOnce is the longest time for which an append sleeps for one consumer before it checks the
// other consumers.
const freedAtOnce = 20 * time.Millisecond

// maxSleepers bounds the threads of a broker that sleep at futexes. Beyond it, appends poll at the
// interval pollEvery.
const (
	maxSleepers = 64
	pollEvery   = 2 * time.Millisecond
)

// append appends records, as many as fit until ctx ends. It returns the offset of the first record,
// and the number of appended records. pins, if not nil, has the files of each record, which the
// partition owns from then on.
func (p *partition) append(ctx context.Context, records []stream.Record, pins [][]*files.File,
	at *uint64) (first uint64, n int, err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	if pins != nil || p.pinned != nil { // p.pinned is written only by the append that has the turn
		defer p.letGo()
	}
	p.mu.Lock()
	first = p.ring.Next()
	if at != nil && p.ended == nil && *at != first {
		p.mu.Unlock()
		return first, 0, nodeapi.Errorf(nodeapi.CodeWrongOffset, "read what is there from your offset on, and append the rest",
			"the next offset is %d, not %d", first, *at)
	}
	for n < len(records) && p.ended == nil {
		waitFor := p.put(&records[n])
		if waitFor == nil {
			if pins != nil && len(pins[n]) > 0 {
				newest := p.ring.Begun() - 1
				if p.pinned == nil {
					p.pinned = map[uint64][]*files.File{}
				}
				p.pinned[newest] = append(p.pinned[newest], pins[n]...)
			}
			n++
			continue
		}
		p.announce()
		p.mu.Unlock()
		// waitFor must be called even if ctx has ended, because it also gives back its share of
		// sleeping threads
		waitFor(ctx)
		p.mu.Lock()
		if ctx.Err() != nil {
			break
		}
	}
	p.announce()
	err = p.ended
	p.mu.Unlock()
	if n > 0 {
		return first, n, nil
	}
	return first, 0, errors.Join(err, ctx.Err())
}

// put writes a record. If consumers still hold the memory for it, put returns a function that waits
// for them. The caller holds p.mu.
func (p *partition) put(r *stream.Record) (waitFor func(context.Context)) {
	size := stream.RecordBytes(len(r.Data))
	now := p.clock()
	if !p.ring.Fits(size) {
		p.collect()
	}
	place, blockers := p.ring.Append(size, now)
	if len(blockers) > 0 {
		p.counts.waits.Add(1)
		return p.blocked(blockers, now)
	}
	p.counts.records.Add(1)
	p.counts.bytes.Add(uint64(len(r.Data)))
	p.counts.moved.Add(place.Moved)
	if objects := uint64(p.shared.Objects()); place.Begins && place.Object >= objects {
		p.unpin(place.Object - objects)
	}
	r.Time = now
	// write p.log first, because a record that a consumer has read must never be lost
	for _, s := range [...]*stream.Segment{p.log, p.shared} {
		if s == nil {
			continue
		}
		if place.Begins {
			s.Begin(place.Object, place.Offset)
		}
		s.Put(place.Object, place.At, *r)
		s.Publish(place.Object, place.Used, place.Count)
	}
	p.newest = r.Mark
	return nil
}

// collect records which objects the consumers have released. The caller holds p.mu.
func (p *partition) collect() {
	for _, s := range p.seats {
		s.report()
	}
}

// report copies a consumer's position from its cursor page to the ledger. The caller holds p.mu.
func (s *seat) report() {
	c := s.sub.cursor
	// read next before held, because the consumer finishes a record before it releases it
	next := c.Next(s.cell).Load()
	if err := s.p.ring.LetGo(s.sub.id, c.Held(s.cell).Load(), next); err != nil {
		s.sub.stop(invalid("%v", err))
		s.p.ring.Leave(s.sub.id, s.p.clock())
	}
}

// blocked returns a function that waits for the first of the blockers. The other blockers matter
// only after the first has released its objects. The caller holds p.mu.
func (p *partition) blocked(blockers []ledger.Blocker, now int64) func(context.Context) {
	b := blockers[0]
	pause := min(time.Duration(b.Until-now), freedAtOnce)
	for _, s := range p.seats {
		if s.sub.id != b.ID || b.ID == 0 {
			continue
		}
		if s.sub.stopped() {
			p.ring.Leave(b.ID, now)
			return func(context.Context) {}
		}
		c, cell := s.sub.cursor, s.cell
		freed := c.Freed(cell)
		before := freed.Load()
		c.Want(cell).Store(b.Want)
		if c.Held(cell).Load() >= b.Want {
			return func(context.Context) {}
		}
		of := s.sub.s
		// the namespace's share of sleeping threads is used up, so this append polls
		if !of.b.sleepers.Take(of.Namespace, 1) {
			pause = min(pause, pollEvery)
			continue
		}
		// The cursor page must stay mapped while a thread sleeps at one of its futexes.
		s.sub.users.Add(1)
		return func(ctx context.Context) {
			defer of.b.sleepers.Give(of.Namespace, 1)
			defer s.sub.users.Done()
			if deadline, ok := ctx.Deadline(); ok {
				pause = min(pause, time.Until(deadline))
			}
			futex.Wait(freed, before, pause)
		}
	}
	// This append polls, because the consumer has disconnected but its position is kept, or because
	// no thread may sleep at the futex.
	return func(ctx context.Context) {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// announce wakes the readers that wait for new records. The caller holds p.mu.
func (p *partition) announce() {
	for _, s := range p.seats {
		s.sub.ring()
	}
	if p.news != nil {
		close(p.news)
		p.news = nil
	}
}

// leave removes a subscription from the partition. The caller holds p.mu.
func (p *partition) leave(sub *Subscription) {
	for i, s := range p.seats {
		if s.sub == sub {
			s.report()
			p.seats = append(p.seats[:i], p.seats[i+1:]...)
			if sub.failed {
				p.ring.Withdraw(sub.id, p.clock())
			} else {
				p.ring.Leave(sub.id, p.clock())
			}
			return
		}
	}
}
