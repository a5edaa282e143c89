// Package endpoint is the synchronizer's interface to a store.
package endpoint

import (
	"context"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Record is one that was read.
type Record struct {
	Key     string // without the source's prefix
	Value   []byte
	Deleted bool
	Version uint64               // the source's: a revision, an offset
	At      exactlyonce.Position // of this record: a reader that continues after it gets the next one
	Gap     string               // which part of the source's history is missing before it, in words
}

// Row is one that is to be written.
type Row struct {
	Key     string // without the destination's prefix
	Value   []byte
	Deleted bool
}

// Rows are records as they are.
func Rows(records []Record) (rows []Row) {
	for _, r := range records {
		rows = append(rows, Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted})
	}
	return rows
}

// Source is read in an order that is the same each time, from any position in it.
type Source interface {
	// Read gives records after a position, and the position of the last one. It waits until there
	// are some, or until ctx ends, with which there are none.
	Read(ctx context.Context, from exactlyonce.Position, most int) ([]Record, exactlyonce.Position, error)
	Close() error
}

// Gapped is a source that may find that a part of its history is missing before a record comes.
type Gapped interface {
	// Gap says in words what is missing before the record that comes next. "": nothing is.
	Gap() string
}

// Gap is what a source lacks before the next record.
func Gap(s Source) string {
	if g, ok := s.(Gapped); ok {
		return g.Gap()
	}
	return ""
}

// Sink is a destination, for one pipelet and one of its sources.
type Sink interface {
	// Open says what the destination knows about the pipelet.
	Open(ctx context.Context) (exactlyonce.State, error)
	// Commit writes rows and the state that comes with them. Where the pipelet asks for exactly
	// once, both in one transaction, and only if the state is what it was. The rows are not the
	// destination's own: others may have them, too.
	Commit(ctx context.Context, was, next exactlyonce.State, rows []Row) error
	Close() error
}

// Batcher is a destination that takes batches of another size than others do.
type Batcher interface {
	// Most is how many records a batch has at most.
	Most() int
}
