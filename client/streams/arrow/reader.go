package streamsarrow

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/netcraq/netcraq/client/streams"
)

// Config configures a Reader.
type Config struct {
	streams.Config
	// Files must belong to the same node and namespace as the stream. If a program writes batches
	// that it has read, it must give its Writer the same Files. If Files is nil, the reader makes
	// its own.
	Files *Files
	// Trusted skips the check that offsets and indices in columns are in range. If it is set, a
	// program that may append to the stream can crash the programs that read the stream.
	Trusted bool
}

// Reader reads a stream of batches. Only one goroutine at a time may use it.
type Reader struct {
	reader  *streams.Reader
	files   *Files
	own     bool
	trusted bool

	records   []streams.Record
	partition int
	offset    uint64 // offset of the first record in the field records
	missed    uint64
	hold      *streams.Hold
	last      arrow.RecordBatch
}

// Open starts to read. It fails at once if the stream does not exist.
func Open(ctx context.Context, cfg Config) (*Reader, error) {
	r := &Reader{files: cfg.Files, own: cfg.Files == nil, trusted: cfg.Trusted}
	var err error
	if r.reader, err = streams.Open(ctx, cfg.Config); err != nil {
		return nil, err
	}
	if r.own {
		r.files = NewFiles(FilesConfig{Socket: cfg.Socket, Namespace: cfg.Namespace})
	}
	return r, nil
}

// Item is a batch with its position.
type Item struct {
	Partition int
	Offset    uint64
	// Missed counts the records directly before this one that were overwritten before the reader
	// could read them.
	Missed uint64
	// Batch is valid until the next call of Next. It stays valid, even after the reader is closed,
	// while the program retains the batch, one of its columns, or anything made from them without a
	// copy.
	Batch arrow.RecordBatch

	hold *streams.Hold
}

// Valid reports whether the batch is unchanged. The batch is not valid if it was held for longer
// than the stream's StallMillis and the node has reused its memory for other records.
func (i *Item) Valid() bool { return i.hold == nil || i.hold.Valid() }

// Next returns the next batch. It waits for a batch until ctx ends. It first releases the previous
// batch. It fails with streams.ErrOverrun if a batch was held too long and overwritten. This
// happens once while the batch is being read, and once more after its release. It fails with
// ErrGarbage if a record is not a batch. After either error the next call continues.
func (r *Reader) Next(ctx context.Context) (*Item, error) {
	r.letGo()
	for len(r.records) == 0 {
		r.drop()
		b, err := r.reader.Next(ctx)
		if err != nil {
			return nil, err
		}
		for _, record := range b.Records() {
			r.records = append(r.records, record)
		}
		r.partition, r.offset, r.missed, r.hold = b.Partition, b.Offset, b.Missed, b.Hold()
	}
	item := &Item{Partition: r.partition, Offset: r.offset, Missed: r.missed, hold: r.hold}
	data := r.records[0].Data
	var by counted
	if r.hold != nil {
		by = r.hold
	}
	open := func(name fileName) (*Mapped, error) { return r.files.open(ctx, name) }
	batch, err := decode(data, by, open, &r.files.schemas, r.trusted)
	if err != nil && ctx.Err() != nil {
		return nil, err // the next call reads this record again
	}
	r.records, r.offset, r.missed = r.records[1:], r.offset+1, 0
	if err != nil {
		return nil, err
	}
	item.Batch, r.last = batch, batch
	return item, nil
}

// letGo releases the batch that Next has returned last.
func (r *Reader) letGo() {
	if r.last != nil {
		r.last.Release()
		r.last = nil
	}
}

// drop releases the records that the reader has read last.
func (r *Reader) drop() {
	if r.hold != nil {
		r.hold.Release()
	}
	r.records, r.hold = nil, nil
}

// Close ends the reader. Retained batches stay valid.
func (r *Reader) Close() {
	r.letGo()
	r.drop()
	r.reader.Close()
	if r.own {
		r.files.Close()
	}
}
