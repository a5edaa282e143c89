package broker

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/api/stream/futex"
	"github.com/netcraq/netcraq/streams/ledger"
	"github.com/netcraq/netcraq/streams/segment"
)

// Subscription is the mapping of a stream's partitions by a consumer. The caller of Subscribe must
// close it.
type Subscription struct {
	// Answer is the message to the consumer, which is sent together with the descriptors.
	Answer nodeapi.SubscribeAnswer

	s      *Stream
	id     ledger.ID
	page   *segment.Memory
	cursor *stream.Cursor
	seats  []*seat
	want   int            // number of partitions
	failed bool           // Subscribe failed, so the consumer keeps its earlier position
	users  sync.WaitGroup // threads that use the cursor page without holding a partition's lock
	ended  atomic.Bool
	done   chan struct{}
	err    error
	close  sync.Once
}

// errGone ends a subscription whose consumer has closed its connection. No client receives this
// error.
var errGone = nodeapi.Errorf(nodeapi.CodeCanceled, "", "the consumer's connection has ended")

// Subscribe adds a consumer. The new consumer replaces an existing consumer with the same name.
// gone reports whether the new consumer has closed its connection; a nil gone means that it is
// connected. Subscribe calls gone just before the replacement, while it holds a partition's lock.
func (s *Stream) Subscribe(d *nodeapi.SubscribeData, gone func() bool) (_ *Subscription, err error) {
	which := d.Partitions
	if len(which) == 0 {
		for i := range s.partitions {
			which = append(which, i)
		}
	}
	if len(which) > len(s.partitions) {
		return nil, invalid("%d partitions of %d", len(which), len(s.partitions))
	}
	for i, n := range which {
		if n < 0 || n >= len(s.partitions) || slices.Contains(which[:i], n) {
			return nil, invalid("partition %d: the stream has partitions 0 to %d, to be named once each", n, len(s.partitions)-1)
		}
	}
	from, err := s.from(d.From, len(d.Offsets) > 0, d.Incarnation, d.Consumer)
	if err != nil {
		return nil, err
	}
	if from == ledger.At && len(d.Offsets) != len(which) {
		return nil, invalid("%d offsets for %d partitions", len(d.Offsets), len(which))
	}
	id, err := s.b.admit(s, len(which))
	if err != nil {
		return nil, err
	}
	u := &Subscription{s: s, id: id, want: len(which), done: make(chan struct{})}
	defer func() {
		if err != nil {
			u.failed = true
			u.Close()
		}
	}()
	if u.page, err = segment.NewShared("netcraq-cursor", stream.CursorBytes); err != nil {
		return nil, err
	}
	if u.cursor, err = stream.FormatCursor(u.page.Bytes, len(which)); err != nil {
		return nil, err
	}
	u.Answer = nodeapi.SubscribeAnswer{Descriptors: 1 + len(which), Incarnation: s.Incarnation}
	for cell, n := range which {
		var offset uint64
		if from == ledger.At {
			offset = d.Offsets[cell]
		}
		start, err := u.sit(s.partitions[n], cell, d, from, offset, gone)
		if err != nil {
			return nil, err
		}
		u.Answer.Partitions = append(u.Answer.Partitions, start)
	}
	if ledger.Bare(d.Consumer) != "" {
		return u, s.remember()
	}
	return u, nil
}

// sit adds the consumer to one partition.
func (u *Subscription) sit(p *partition, cell int, d *nodeapi.SubscribeData, from ledger.From,
	offset uint64, gone func() bool) (out nodeapi.PartitionStart, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return out, p.ended
	}
	// The server may read a dead consumer's request late, after the request of the consumer's
	// successor. The dead consumer must not replace its successor.
	if gone != nil && gone() {
		return out, errGone
	}
	for _, s := range p.seats { // report the position of a connected consumer with this name before it is replaced
		s.report()
	}
	start, replaced, err := p.ring.Join(u.id, d.Consumer, from, offset, d.Skip, p.clock())
	if err != nil {
		return out, asJoin(err)
	}
	for i, s := range p.seats {
		if s.sub.id == replaced && replaced != 0 {
			s.sub.stop(nodeapi.Errorf(nodeapi.CodeNotHeld, "", "another one has subscribed as %q", ledger.Bare(d.Consumer)))
			p.seats = slices.Delete(p.seats, i, i+1)
			break
		}
	}
	u.cursor.Held(cell).Store(start.Object)
	u.cursor.Next(cell).Store(start.Offset)
	s := &seat{u, cell, p}
	p.seats = append(p.seats, s)
	u.seats = append(u.seats, s)
	return nodeapi.PartitionStart{Partition: p.number, Bytes: len(p.memory.Bytes),
		Generation: strconv.FormatUint(p.shared.Generation(), 10), Object: start.Object, Offset: start.Offset,
		Missed: start.Missed}, nil
}

// Files returns the descriptors for the consumer, in the order of the answer. The caller closes
// them.
func (u *Subscription) Files() (out []*os.File, err error) {
	f, err := u.page.Pass()
	if err != nil {
		return nil, err
	}
	out = append(out, f)
	for _, s := range u.seats {
		s.p.mu.Lock()
		if err = s.p.ended; err == nil {
			f, err = s.p.memory.Pass()
		}
		s.p.mu.Unlock()
		if err != nil {
			for _, f := range out {
				f.Close()
			}
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// ring wakes the consumer if it sleeps at the bell of its cursor page.
func (u *Subscription) ring() {
	if u.cursor.Waiting().Load() != 0 {
		u.cursor.Waiting().Store(0)
		u.cursor.Bell().Add(1)
		futex.Wake(u.cursor.Bell())
	}
}

// stop ends the subscription. Its owner must still close it. The caller may hold the locks of its
// partitions.
func (u *Subscription) stop(err error) {
	if u.ended.CompareAndSwap(false, true) {
		u.err = err
		close(u.done)
	}
}

func (u *Subscription) stopped() bool { return u.ended.Load() }

// Done returns a channel that is closed when the broker has ended the subscription. Err returns the
// reason.
func (u *Subscription) Done() <-chan struct{} { return u.done }

// Err returns why the subscription has ended. It is valid after Done is closed.
func (u *Subscription) Err() error { return u.err }

// Close ends the subscription, and releases all objects that the consumer held.
func (u *Subscription) Close() {
	u.stop(nil)
	u.close.Do(func() {
		for _, s := range u.seats {
			s.p.mu.Lock()
			s.p.leave(u)
			s.p.announce() // wake appends that waited for this consumer
			s.p.mu.Unlock()
		}
		if u.cursor != nil {
			for cell := range u.seats { // wake threads that sleep at futexes of the cursor page
				u.cursor.Freed(cell).Add(1)
				futex.Wake(u.cursor.Freed(cell))
			}
			u.cursor.Stopped().Store(1)
			u.cursor.Bell().Add(1)
			futex.Wake(u.cursor.Bell())
			u.users.Wait()
		}
		var page *segment.Remains
		if u.page != nil {
			page = u.page.Retire()
		}
		u.s.b.dismiss(u.s, u.want)
		u.s.b.retire(u.s.Namespace, stream.CursorBytes, page)
	})
}
