package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/api/stream/futex"
	"github.com/netcraq/netcraq/client/streams/internal/passing"
)

// push is the way of reading that maps the node's memory.
type push struct {
	r           *Reader
	incarnation string
	nc          *net.UnixConn
	page        []byte
	cursor      *stream.Cursor
	parts       []*part
	turn        int // index of the partition to check next

	listening sync.WaitGroup
	// mu guards page, which the goroutine that listens to the connection also reads. It also guards
	// the number of holds, because a hold may end in any goroutine.
	mu      sync.Mutex
	held    int  // number of objects that Holds keep valid
	closing bool // when held is 0, the memory is unmapped
	ended   chan struct{}
	err     error // why the subscription has ended; valid after ended is closed
}

// part is a partition whose memory is mapped.
type part struct {
	number, cell int
	memory       []byte
	segment      *stream.Segment
	object       uint64 // number of the object that is being read
	at           int    // offset in the object up to which the object was read
	offset       uint64 // number of the record that begins at the offset `at`
	skip         uint64 // records with smaller numbers were already read

	holds map[uint64]int // number of Holds for each object
	// The reader has finished all objects before done and all records before next, except for those
	// that Holds keep.
	done, next uint64
}

var errGarbage = errors.New("what answers is no node server that passes memory")

// openPush connects, and maps the memory that the server passes.
func openPush(ctx context.Context, r *Reader) (way, error) {
	nc, err := passing.Dial(ctx, r.cfg.Socket, "set Pull")
	if err != nil {
		return nil, err
	}
	p := &push{r: r, nc: nc, ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	rest, err := p.subscribe()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		p.unmap()
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	p.listening.Go(func() { p.listen(rest) })
	return p, nil
}

// subscribe requests the memory and maps it. rest is the data that was read after the answer.
func (p *push) subscribe() (rest []byte, err error) {
	cfg := &p.r.cfg
	ask := nodeapi.SubscribeData{StreamData: nodeapi.StreamData{Namespace: cfg.Namespace, Stream: cfg.Stream},
		Partitions: cfg.Partitions, From: cfg.From, Incarnation: cfg.Incarnation, Consumer: cfg.Consumer,
		Skip: cfg.Skip}
	if len(p.r.next) > 0 { // the reader has read before, or its Config has offsets
		ask.From = ""
		if len(ask.Partitions) == 0 {
			for n := range len(p.r.next) {
				ask.Partitions = append(ask.Partitions, n)
			}
		}
		for _, n := range ask.Partitions {
			ask.Offsets = append(ask.Offsets, p.r.next[n])
		}
	}
	data, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(p.nc, `{"id":1,"func":"%s","data":%s}`+"\n", nodeapi.FuncSubscribe, data); err != nil {
		return nil, err
	}
	var fds []int
	defer func() { passing.Close(fds) }()
	in := make([]byte, 0, 64<<10)
	rights := make([]byte, unix.CmsgSpace(4*(1+stream.MaxPartitions)))
	for {
		if len(in) == cap(in) {
			return nil, errGarbage
		}
		n, m, _, _, err := p.nc.ReadMsgUnix(in[len(in):cap(in)], rights)
		fds = append(fds, passing.Descriptors(rights[:m])...)
		if err != nil || n == 0 {
			return nil, errors.Join(errors.New("the connection ended"), err)
		}
		if len(fds) > 1+stream.MaxPartitions {
			return nil, errGarbage
		}
		in = in[:len(in)+n]
		line, after, ok := bytes.Cut(in, []byte("\n"))
		if !ok {
			continue
		}
		var answer struct {
			ID    uint64                   `json:"id"`
			Data  *nodeapi.SubscribeAnswer `json:"data"`
			Error *nodeapi.Error           `json:"error"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return nil, errors.Join(errGarbage, err)
		}
		switch {
		case answer.Error != nil:
			return nil, answer.Error
		case answer.ID != 1 || answer.Data == nil:
			in = in[:copy(in, after)]
			continue
		case len(fds) != answer.Data.Descriptors || len(fds) != 1+len(answer.Data.Partitions):
			return nil, errGarbage
		}
		return bytes.Clone(after), p.adopt(answer.Data, fds)
	}
}

// adopt maps the memory that the server has passed.
func (p *push) adopt(a *nodeapi.SubscribeAnswer, fds []int) (err error) {
	if p.page, err = mapped(fds[0], stream.CursorBytes, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("mapping the cursor page: %w", err)
	}
	if p.cursor, err = stream.OpenCursor(p.page); err != nil {
		return errors.Join(errGarbage, err)
	}
	if len(a.Partitions) == 0 || p.cursor.Cells() != len(a.Partitions) {
		return errGarbage
	}
	p.incarnation, p.r.cfg.Incarnation = a.Incarnation, a.Incarnation
	for cell, s := range a.Partitions {
		t := &part{number: s.Partition, cell: cell, object: s.Object, skip: s.Offset,
			done: s.Object, next: s.Offset}
		if t.memory, err = mapped(fds[1+cell], s.Bytes, unix.PROT_READ); err != nil {
			return fmt.Errorf("mapping a segment: %w", err)
		}
		p.parts = append(p.parts, t)
		if t.segment, err = stream.Open(t.memory); err != nil {
			return errors.Join(errGarbage, err)
		}
		if err := p.r.begins(s.Partition, s.Offset, s.Missed); err != nil {
			return err
		}
	}
	return nil
}

func mapped(fd, size, rights int) ([]byte, error) {
	if !passing.Whole(fd, int64(size)) {
		return nil, errGarbage
	}
	return unix.Mmap(fd, 0, size, rights, unix.MAP_SHARED)
}

// listen waits until the connection or the subscription ends.
func (p *push) listen(in []byte) {
	err := errors.New("the connection ended")
	buf := make([]byte, 4096)
	for {
		line, rest, ok := bytes.Cut(in, []byte("\n"))
		if ok {
			var answer struct {
				Error *nodeapi.Error `json:"error"`
			}
			if json.Unmarshal(line, &answer) == nil && answer.Error != nil {
				err = answer.Error
				break
			}
			in = rest
			continue
		}
		n, e := p.nc.Read(buf)
		if n == 0 && e != nil || len(in) > 1<<20 {
			break
		}
		in = append(bytes.Clone(in), buf[:n]...)
	}
	p.nc.Close() // a server that is shutting down waits until its clients disconnect
	p.err = err
	close(p.ended)
	p.wake()
}

// wake makes a sleeping reader check again.
func (p *push) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.page != nil {
		p.cursor.Bell().Add(1)
		futex.Wake(p.cursor.Bell())
	}
}

// sleepAtMost bounds the time that a reader sleeps without checking. A new record rings the bell (a
// futex), which wakes the reader earlier.
const sleepAtMost = time.Second

// read implements the method of way.
func (p *push) read(ctx context.Context) (*Batch, error) {
	if b, err := p.look(); b != nil || err != nil {
		return b, err
	}
	defer context.AfterFunc(ctx, p.wake)()
	for {
		bell := p.cursor.Bell().Load()
		p.cursor.Waiting().Store(1)
		b, err := p.look()
		if b == nil && err == nil {
			select {
			case <-p.ended: // the subscription has ended; check once more for records
				b, err = p.look()
				if b == nil && err == nil {
					err = p.err
				}
			default:
				err = ctx.Err()
			}
		}
		if b != nil || err != nil {
			p.cursor.Waiting().Store(0)
			return b, err
		}
		futex.Wait(p.cursor.Bell(), bell, sleepAtMost)
	}
}

// look returns a batch, or nil if there is no new record.
func (p *push) look() (*Batch, error) {
	for range p.parts {
		t := p.parts[p.turn]
		p.turn = (p.turn + 1) % len(p.parts)
		if b, err := p.lookAt(t); b != nil || err != nil {
			return b, err
		}
	}
	return nil, nil
}

// lookAt returns a batch of new records of a partition. It checks everything that it reads in the
// memory, because the memory may be invalid.
func (p *push) lookAt(t *part) (*Batch, error) {
	// Each round reads another object. More rounds than objects are needed only if the memory
	// changes meanwhile. In that case the bell rings, so a reader that finds no record does not go
	// to sleep.
	for range t.segment.Objects() + 2 {
		begun := t.segment.Begun()
		if t.object >= begun {
			return nil, nil
		}
		o, ok := t.segment.Object(t.object)
		if !ok && t.segment.Has(t.object) {
			return nil, fmt.Errorf("%w: an object has more records than go into it", errGarbage)
		}
		if !ok {
			p.movedOn(t)
			continue
		}
		at, offset, skipped := t.at, t.offset, uint64(0)
		if at == 0 {
			offset = o.First
		}
		b := &Batch{Incarnation: p.incarnation, Partition: t.number}
		for {
			r, next, ok := o.Next(at)
			if !ok {
				break
			}
			at = next
			if offset+skipped < t.skip {
				skipped++
				continue
			}
			if p.r.cfg.Skip {
				r.Data = bytes.Clone(r.Data)
			}
			b.records = append(b.records, r)
		}
		if !o.Valid() { // The node may already have reused the memory for another object.
			p.movedOn(t)
			continue
		}
		b.Offset = offset + skipped
		b.Next = b.Offset + uint64(len(b.records))
		switch {
		case at != len(o.Bytes) || b.Next-o.First != uint64(o.Count):
			return nil, fmt.Errorf("%w: an object has no records where it says so", errGarbage)
		case o.First > math.MaxInt64 || t.at == 0 && o.First < t.offset:
			return nil, fmt.Errorf("%w: offsets go back", errGarbage)
		}
		t.at, t.offset = at, b.Next
		if len(b.records) == 0 {
			if t.object+1 >= begun {
				return nil, nil
			}
			// Begun was read before the object, so the object is complete, and all of it was read.
			t.object, t.at = t.object+1, 0
			p.letGo(t)
			continue
		}
		b.Missed = p.r.missed(t.number, b.Offset)
		b.release = func() error {
			p.mu.Lock()
			gone := p.page == nil // whether the reader was closed, so that the memory is unmapped
			valid := gone || o.Valid()
			p.mu.Unlock()
			if gone {
				return nil
			}
			if !p.r.cfg.Skip && !valid {
				// These records will be reported as missed. Records that were missed before them
				// are already reported.
				p.r.done(t.number, b.Offset)
				return ErrOverrun
			}
			p.r.done(t.number, b.Next)
			p.letGo(t)
			return nil
		}
		if !p.r.cfg.Skip {
			b.hold = func() *Hold { return p.hold(t, o) }
		}
		return b, nil
	}
	return nil, nil
}

// movedOn handles an object that was overwritten. The reader continues at the newest object.
func (p *push) movedOn(t *part) {
	t.object, t.at = max(t.object+1, t.segment.Begun()-1), 0
	p.letGo(t)
}

// letGo publishes the reader's position, so that the node can reuse the objects before it.
func (p *push) letGo(t *part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.done, t.next = t.object, p.r.next[t.number]
	p.tell(t)
}

// tell publishes the lowest number of an object that is still held, and the number of the next
// record. The caller holds p.mu.
func (p *push) tell(t *part) {
	held := t.done
	for object := range t.holds {
		// If the node has reused the object, the object is no longer held.
		if p.page != nil && t.segment.Has(object) {
			held = min(held, object)
		}
	}
	if p.page != nil && p.cursor.LetGo(t.cell, held, t.next) {
		futex.Wake(p.cursor.Freed(t.cell))
	}
}

// hold makes a Hold for an object.
func (p *push) hold(t *part, o stream.Object) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.holds == nil {
		t.holds = map[uint64]int{}
	}
	t.holds[o.Number]++
	p.held++
	h := &Hold{}
	h.refs.Store(1)
	h.valid = func() bool { // holding p.mu keeps the memory mapped
		p.mu.Lock()
		defer p.mu.Unlock()
		return h.refs.Load() > 0 && o.Valid()
	}
	h.end = func() { p.unhold(t, o) }
	return h
}

// unhold ends one hold of an object. If it was the last hold, unhold releases the object.
func (p *push) unhold(t *part, o stream.Object) {
	p.mu.Lock()
	if !o.Valid() {
		p.r.overrun.Store(true)
	}
	p.held--
	if t.holds[o.Number]--; t.holds[o.Number] == 0 {
		delete(t.holds, o.Number)
		p.tell(t)
	}
	last := p.closing && p.held == 0
	p.mu.Unlock()
	if last {
		p.end()
	}
}

// close implements the method of way. If a Hold still keeps an object, the memory and the
// subscription stay until that Hold ends.
func (p *push) close() {
	p.mu.Lock()
	p.closing = true
	last := p.held == 0
	p.mu.Unlock()
	if last {
		p.end()
	}
}

func (p *push) end() {
	p.nc.Close()
	p.listening.Wait()
	p.unmap()
}

func (p *push) unmap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.parts {
		_ = unix.Munmap(t.memory)
	}
	if p.page != nil {
		_ = unix.Munmap(p.page)
	}
	p.page, p.parts = nil, nil
}
