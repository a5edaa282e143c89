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

// partition is a ring with its memory.
type partition struct {
	number int
	clock  func() int64
	counts *counters
	turn   chan struct{} // contains an element while an append has the turn; appends wait in order

	mu     sync.Mutex
	ring   *ledger.Ring
	memory *segment.Memory
	shared *stream.Segment
	kept   *segment.Memory // nil: it is volatile
	log    *stream.Segment
	seats  []*seat
	newest uint64                   // mark of the last record
	news   chan struct{}            // not nil: a reader waits until it is closed
	ended  error                    // why appends and reads fail
	pinned map[uint64][]*files.File // by object: the files that its records refer to
	unused []*files.File            // files that no record refers to anymore
}

// seat is the part of a subscription in a partition.
type seat struct {
	sub  *Subscription
	cell int
	p    *partition
}

// newSegment makes a segment for consumers.
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

// room returns the maximum number of bytes of records in an object.
func room(c nodeapi.StreamConfig) int { return c.ObjectBytes - stream.ObjectHeaderBytes }

// newPartition makes a partition or, if there is set, restores it from the file at path. It refuses
// an incomplete file, because a ring that began again would assign offsets twice. path "": the
// partition is volatile.
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

// contents returns the state to restore a ledger from. In a full ring the oldest object may be
// missing, because a writer that was about to replace it died. Any other gap is damage, after which
// offsets would be assigned again.
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

// whole reports whether an object has as many records as its header says, and they fill its bytes.
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

// copyObjects fills a new segment with the objects of another one, from number base on.
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

// unpin marks the files of an overwritten object's records for release. p.mu is held.
func (p *partition) unpin(object uint64) {
	p.unused = append(p.unused, p.pinned[object]...)
	delete(p.pinned, object)
}

// letGo releases files that no record refers to anymore. p.mu must not be held, because this
// returns memory to the broker.
func (p *partition) letGo() {
	p.mu.Lock()
	unused := p.unused
	p.unused = nil
	p.mu.Unlock()
	for _, f := range unused {
		f.ReleaseRecord()
	}
}

// free releases the partition's memory. Mappings of consumers stay valid.
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

// freedAtOnce bounds the time for which an append sleeps for one consumer without checking the
// others.
const freedAtOnce = 20 * time.Millisecond

// maxSleepers bounds the threads of a broker that sleep at futexes. Other appends poll at the
// interval pollEvery.
const (
	maxSleepers = 64
	pollEvery   = 2 * time.Millisecond
)

// append appends as many records as there is room for until ctx ends. It returns the offset of the
// first, and the number of records. pins, if any, are the files of each record, which the partition
// owns from then on.
func (p *partition) append(ctx context.Context, records []stream.Record, pins [][]*files.File,
	at *uint64) (first uint64, n int, err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	if pins != nil || p.pinned != nil { // only the holder of the turn writes p.pinned
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
		waitFor(ctx) // called even if ctx has ended, because it also gives back its sleeper
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

// put writes a record, or returns a function that waits for the consumers that are in the way. p.mu
// is held.
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
	// the log first, because a record that was read must never be lost
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

// collect records what consumers have released. p.mu is held.
func (p *partition) collect() {
	for _, s := range p.seats {
		s.report()
	}
}

// report records a consumer's position. p.mu is held.
func (s *seat) report() {
	c := s.sub.cursor
	next := c.Next(s.cell).Load() // read before held, because a released record counts as done
	if err := s.p.ring.LetGo(s.sub.id, c.Held(s.cell).Load(), next); err != nil {
		s.sub.stop(invalid("%v", err))
		s.p.ring.Leave(s.sub.id, s.p.clock())
	}
}

// blocked returns a function that waits for the first of the blockers. The others do not matter
// before that one is out of the way. p.mu is held.
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
		if !of.b.sleepers.Take(of.Namespace, 1) { // the share of sleeping threads is used up, so poll
			pause = min(pause, pollEvery)
			continue
		}
		// The page must stay mapped while a thread sleeps there.
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
	// The consumer has left and its position is kept, or no thread may sleep at the futex.
	return func(ctx context.Context) {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// announce tells readers that there are new records. p.mu is held.
func (p *partition) announce() {
	for _, s := range p.seats {
		s.sub.ring()
	}
	if p.news != nil {
		close(p.news)
		p.news = nil
	}
}

// leave removes a subscription's seat. p.mu is held.
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
