package streamsarrow

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/netcraq/netcraq/client/streams"
)

// Config says which stream is read, and how.
type Config struct {
	streams.Config
	// Files are those of the same node and namespace: a program that writes what it has read gives
	// its Writer the same. nil: the reader's own.
	Files *Files
	// Trusted skips the check that offsets and indices in columns are in range. Then a program that
	// may append to the stream can make programs panic that read it.
	Trusted bool
}

// Reader reads a stream of batches. It is for one goroutine.
type Reader struct {
	reader  *streams.Reader
	files   *Files
	own     bool
	trusted bool

	records   []streams.Record
	partition int
	offset    uint64 // of the first one in records
	missed    uint64
	hold      *streams.Hold
	last      arrow.RecordBatch
}

// Open begins to read. It fails at once if the stream does not exist.
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

// Item is a batch, and its position.
type Item struct {
	Partition int
	Offset    uint64
	// Missed is how many records before this one were gone when they were to be read.
	Missed uint64
	// Batch is valid until the next call of Next, and for as long as somebody has retained it, a
	// column of it, or something that was made of them without copying, even when the reader is
	// closed.
	Batch arrow.RecordBatch

	hold *streams.Hold
}

// Valid says whether the batch is unchanged. It is not if the node has reused its memory for other
// records, because it was held for longer than the stream's StallMillis.
func (i *Item) Valid() bool { return i.hold == nil || i.hold.Valid() }

// Next returns the next batch, for which it waits until ctx ends. It releases the one before. It
// fails with streams.ErrOverrun if a batch was overwritten that was held for too long: once while
// it is read, and once more when it was released; and with ErrGarbage if a record is not a batch.
// After both the next call reads on.
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
		return nil, err // it is read once more
	}
	r.records, r.offset, r.missed = r.records[1:], r.offset+1, 0
	if err != nil {
		return nil, err
	}
	item.Batch, r.last = batch, batch
	return item, nil
}

// letGo releases the batch that was given last.
func (r *Reader) letGo() {
	if r.last != nil {
		r.last.Release()
		r.last = nil
	}
}

// drop releases the last read records.
func (r *Reader) drop() {
	if r.hold != nil {
		r.hold.Release()
	}
	r.records, r.hold = nil, nil
}

// Close ends it. Batches that are retained stay.
func (r *Reader) Close() {
	r.letGo()
	r.drop()
	r.reader.Close()
	if r.own {
		r.files.Close()
	}
}
