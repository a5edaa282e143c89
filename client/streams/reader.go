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

// Config configures a Reader.
type Config struct {
	// Socket is the address of the node's server: a path, or "tcp://host:port". Over TCP, only pull
	// works. If it is empty, nodeapi.FindSocket determines the address.
	Socket string
	// Namespace is the namespace of the stream. If it is empty, the program's own namespace is
	// used.
	Namespace string
	Stream    string
	// Consumer names the consumer. The node remembers the position of a named consumer, and keeps
	// its unread records for some time after it has disconnected. If Consumer is empty, From
	// determines where a new reader begins.
	Consumer string
	// Partitions are the partitions to read. If there are none, the reader reads all partitions.
	Partitions []int
	// From is api.FromKnown, api.FromEarliest or api.FromLatest. It is ignored if Offsets are set.
	// There must be one offset for each partition, and Incarnation must be that of the stream to
	// which the offsets belong.
	From        string
	Offsets     []uint64
	Incarnation string
	// Pull makes the reader send requests instead of mapping the node's memory.
	Pull bool
	// BatchBytes bounds the size of a batch that is read by pull. 0 means the server's bound.
	BatchBytes int
	// Skip makes the node overwrite records that a slow reader has not read yet, instead of waiting
	// for the reader. The reader then skips these records. By push, a reader with Skip copies
	// records, because they may be overwritten while they are read.
	Skip bool
}

// Record is a record of a stream.
type Record struct {
	// Data is the content of the record. By push without Skip, it is in the node's memory, and
	// valid until Release. Otherwise it is a copy.
	Data []byte
	Mark uint64    // the mark that the producer has set
	Time time.Time // time at which the record was appended
}

// Batch is a sequence of consecutive records of one partition.
type Batch struct {
	Incarnation string
	Partition   int
	Offset      uint64 // number of the first record
	Next        uint64 // number of the record after the last one
	// Missed counts the records directly before this batch that were overwritten before the reader
	// could read them.
	Missed uint64

	records  []stream.Record
	released bool
	release  func() error
	hold     func() *Hold // nil if the records are copies
}

// Records iterates over the records and their offsets.
func (b *Batch) Records() iter.Seq2[uint64, Record] {
	return func(yield func(uint64, Record) bool) {
		for i, r := range b.records {
			if !yield(b.Offset+uint64(i), Record{r.Data, r.Mark, time.Unix(0, r.Time)}) {
				return
			}
		}
	}
}

// Len returns the number of records.
func (b *Batch) Len() int { return len(b.records) }

// ErrOverrun is returned by Release. It means that the reader was too slow, and that its batch may
// have been overwritten while the program read it. The reader continues at a newer record.
var ErrOverrun = errors.New("the records were overwritten while they were read: the reader was too slow")

// Release ends the use of a batch. Next releases the previous batch.
func (b *Batch) Release() error {
	if b.released {
		return nil
	}
	b.released = true
	return b.release()
}

// Hold keeps a batch's records valid until its Release, even if the reader continues or is closed,
// because the node does not reuse their memory. It returns nil if the records are copies, which
// need no Hold. Call Hold before the batch is released.
func (b *Batch) Hold() *Hold {
	if b.hold == nil {
		return nil
	}
	return b.hold()
}

// Hold keeps the records of a batch valid. A new Hold has one reference. Any goroutine may use it.
type Hold struct {
	refs  atomic.Int64
	valid func() bool
	end   func()
}

// Valid reports whether everything read from the records so far was correct. It returns false after
// the last Release. It also returns false if the records were held for longer than the stream's
// StallMillis and the node has reused the memory; the reader's Next reports that, too.
func (h *Hold) Valid() bool { return h.valid() }

// Retain adds a reference.
func (h *Hold) Retain() { h.refs.Add(1) }

// Release releases a reference. When no reference is left, the records are released.
func (h *Hold) Release() {
	if h.refs.Add(-1) == 0 {
		h.end()
	}
}

// Reader reads a stream. Only one goroutine at a time may use it.
type Reader struct {
	cfg  Config
	way  way
	last *Batch
	next map[int]uint64 // number of the next record to read, by partition

	overrun atomic.Bool // whether held records were overwritten
}

// way is a way to get records: push or pull. After a temporary error, the reader makes a new way.
type way interface {
	// read returns the next batch. It waits for one until ctx ends.
	read(ctx context.Context) (*Batch, error)
	close()
}

// Open connects and starts to read. It fails at once if the stream does not exist.
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

// begin connects. It retries until ctx ends.
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

// temporary reports whether the reader should connect again after err.
func temporary(err error) bool {
	switch node.CodeOf(err) {
	// CodeCanceled comes from the server here, not from the caller's context.
	case nodeapi.CodeUnavailable, nodeapi.CodeDraining, nodeapi.CodeTimeout, nodeapi.CodeInternal,
		nodeapi.CodeCanceled:
		return true
	case "":
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, errGarbage)
	}
	return false
}

// Next returns the next batch. It waits for a batch until ctx ends. It first releases the previous
// batch. It fails with ErrOverrun if the previous batch was overwritten. It also fails with
// ErrOverrun if the records of a Hold were overwritten and the Hold has ended since the last Next.
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

// Close ends the reader, and releases its batches.
func (r *Reader) Close() {
	if r.way != nil {
		r.way.close()
		r.way = nil
	}
}

// done records that all records before the number next were read. After any error, the reader
// continues there.
func (r *Reader) done(partition int, next uint64) { r.next[partition] = next }

// begins records where the reading of a partition begins. missed counts records that were lost
// before that. They must be reported with a batch, even if that batch comes over another
// connection.
func (r *Reader) begins(partition int, offset, missed uint64) error {
	if missed > offset {
		return fmt.Errorf("%w: %d records are missed before record %d", errGarbage, missed, offset)
	}
	r.done(partition, offset-missed)
	return nil
}

// missed returns the number of records between the reader's position and the record with which it
// continues.
func (r *Reader) missed(partition int, offset uint64) uint64 {
	if was, ok := r.next[partition]; ok && offset > was {
		return offset - was
	}
	return 0
}
