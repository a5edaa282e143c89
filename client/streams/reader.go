package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/client/node"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

// Config says what to read, and how.
type Config struct {
	// Socket is the address of the node's server: a path, or "tcp://host:port", with which only
	// pull works. "": that of nodeapi.FindSocket.
	Socket string
	// Namespace is the stream's. "": the program's own.
	Namespace string
	Stream    string
	// Consumer is a name: the node remembers its position, and keeps what it has not read for a
	// while after it has gone. "": no name; then a new reader begins where From says.
	Consumer string
	// Partitions are which. None: all.
	Partitions []int
	// From is api.FromKnown, api.FromEarliest or api.FromLatest, unless there are Offsets, one for
	// each partition, with the Incarnation of the stream that they belong to.
	From        string
	Offsets     []uint64
	Incarnation string
	// Pull asks for records by requests, instead of mapping the node's memory.
	Pull bool
	// BatchBytes bounds a batch of pull. 0: the server's bound.
	BatchBytes int
	// Skip has the node move this reader on rather than wait for it. By push, records are copied
	// then, since they may be overwritten while they are read.
	Skip bool
}

// Record is one that is read.
type Record struct {
	// Data lie in the node's memory, by push without Skip: they are good until Release.
	Data []byte
	Mark uint64    // the producer's
	Time time.Time // when it was appended
}

// Batch is some consecutive records of one partition.
type Batch struct {
	Incarnation string
	Partition   int
	Offset      uint64 // of the first record
	Next        uint64 // the one after the last
	// Missed is how many records before the first were gone when they were to be read.
	Missed uint64

	records  []stream.Record
	released bool
	release  func() error
	hold     func() *Hold // nil: the records are copies
}

// Records are its records, by offset.
func (b *Batch) Records() iter.Seq2[uint64, Record] {
	return func(yield func(uint64, Record) bool) {
		for i, r := range b.records {
			if !yield(b.Offset+uint64(i), Record{r.Data, r.Mark, time.Unix(0, r.Time)}) {
				return
			}
		}
	}
}

// Len is how many there are.
func (b *Batch) Len() int { return len(b.records) }

// ErrOverrun is returned by Release: the reader was too slow, and was moved on while it read. What
// it has read of the batch may have been overwritten.
var ErrOverrun = errors.New("the records were overwritten while they were read: the reader was too slow")

// Release releases the batch: its reader is done with it. Next releases the batch before it.
func (b *Batch) Release() error {
	if b.released {
		return nil
	}
	b.released = true
	return b.release()
}

// Hold keeps a batch's records until Release, also when their reader continues, and when it is
// closed: the node does not get the memory back that they are in. nil: there is no need to, since
// they are copies. It is to be called before the batch is released.
func (b *Batch) Hold() *Hold {
	if b.hold == nil {
		return nil
	}
	return b.hold()
}

// Hold keeps the records of a batch. It is made with one reference, and for all goroutines.
type Hold struct {
	refs  atomic.Int64
	valid func() bool
	end   func()
}

// Valid says whether the records are there: all that was read of them until now was theirs. They
// are not when they were held for longer than the stream's StallMillis, and the node took the
// memory, which the reader's Next tells, too; nor when they were released.
func (h *Hold) Valid() bool { return h.valid() }

// Retain adds a reference.
func (h *Hold) Retain() { h.refs.Add(1) }

// Release takes one away. With the last of them the records are released.
func (h *Hold) Release() {
	if h.refs.Add(-1) == 0 {
		h.end()
	}
}

// Reader reads a stream. It is for one goroutine.
type Reader struct {
	cfg  Config
	way  way
	last *Batch
	next map[int]uint64 // by partition: where to read on

	overrun atomic.Bool // of held records
}

// way is how records come: push or pull. A temporary error ends it, and it is started again.
type way interface {
	// read gives the next batch. It waits until ctx ends.
	read(ctx context.Context) (*Batch, error)
	close()
}

// Open begins to read. It fails at once if the stream does not exist.
func Open(ctx context.Context, cfg Config) (*Reader, error) {
	r := &Reader{cfg: cfg, next: map[int]uint64{}}
	if len(cfg.Offsets) > 0 && len(cfg.Offsets) != len(cfg.Partitions) {
		return nil, fmt.Errorf("%d offsets for %d partitions", len(cfg.Offsets), len(cfg.Partitions))
	}
	for i, offset := range cfg.Offsets {
		r.next[cfg.Partitions[i]] = offset
	}
	return r, r.begin(ctx)
}

// begin connects, until ctx ends.
func (r *Reader) begin(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var err error
		if r.cfg.Pull {
			r.way, err = openPull(ctx, r)
		} else {
			r.way, err = openPush(ctx, r)
		}
		if err == nil || !temporary(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// temporary says whether it may help to connect again.
func temporary(err error) bool {
	switch node.CodeOf(err) {
	// Canceled: by the server.
	case nodeapi.CodeUnavailable, nodeapi.CodeDraining, nodeapi.CodeTimeout, nodeapi.CodeInternal,
		nodeapi.CodeCanceled:
		return true
	case "":
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, errGarbage)
	}
	return false
}

// Next returns the next batch, for which it waits until ctx ends. It releases the batch before. It
// fails with ErrOverrun if that one was overwritten, or one of a Hold that has ended since.
func (r *Reader) Next(ctx context.Context) (*Batch, error) {
	if r.last != nil {
		if err := r.last.Release(); err != nil {
			return nil, err
		}
		r.last = nil
	}
	if r.overrun.Swap(false) {
		return nil, ErrOverrun
	}
	for {
		if r.way == nil {
			if err := r.begin(ctx); err != nil {
				return nil, err
			}
		}
		b, err := r.way.read(ctx)
		if err == nil {
			r.last = b
			return b, nil
		}
		if ctx.Err() != nil || !temporary(err) {
			return nil, err
		}
		r.way.close()
		r.way = nil
	}
}

// Close ends it, and gives back what it held.
func (r *Reader) Close() {
	if r.way != nil {
		r.way.close()
		r.way = nil
	}
}

// done notes that everything before an offset was read: there it continues, whatever happens.
func (r *Reader) done(partition int, next uint64) { r.next[partition] = next }

// begins notes where a partition is read on. Records that were missed before are still to be
// reported by a batch, even by one of another connection.
func (r *Reader) begins(partition int, offset, missed uint64) error {
	if missed > offset {
		return fmt.Errorf("%w: %d records are missed before record %d", errGarbage, missed, offset)
	}
	r.done(partition, offset-missed)
	return nil
}

// missed is the number of records between the reader's position and where it continues.
func (r *Reader) missed(partition int, offset uint64) uint64 {
	if was, ok := r.next[partition]; ok && offset > was {
		return offset - was
	}
	return 0
}
