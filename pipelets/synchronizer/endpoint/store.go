// Package endpoint is the synchronizer's interface to a store.
package endpoint

import (
	"context"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Record is a record from a source.
type Record struct {
	Key     string // without the source's prefix
	Value   []byte
	Deleted bool
	Version uint64               // the source's version: a revision, an offset
	At      exactlyonce.Position // position of this record: a reader that continues from it gets the next record
	Gap     string               // the part of the source's history that is missing before it, as text
}

// Row is a row for a destination.
type Row struct {
	Key     string // without the destination's prefix
	Value   []byte
	Deleted bool
}

// Rows converts records to rows unchanged.
func Rows(records []Record) (rows []Row) {
	for _, r := range records {
		rows = append(rows, Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted})
	}
	return rows
}

// Source is a store that is read in a fixed order, from any position in it.
type Source interface {
	// Read returns records after a position, and the position of the last one. It waits until there
	// are some, or until ctx ends; then it returns none.
	Read(ctx context.Context, from exactlyonce.Position, most int) ([]Record, exactlyonce.Position, error)
	Close() error
}

// Gapped is a Source that may find that a part of its history is missing before the next record.
type Gapped interface {
	// Gap describes what is missing before the next record. "": nothing is.
	Gap() string
}

// Gap describes what a source lacks before the next record.
func Gap(s Source) string {
	if g, ok := s.(Gapped); ok {
		return g.Gap()
	}
	return ""
}

// Sink is a destination, for one pipelet and one of its sources.
type Sink interface {
	// Open returns the destination's state for the pipelet.
	Open(ctx context.Context) (exactlyonce.State, error)
	// Commit writes rows and the new state. If the pipelet requests exactly-once, it writes both in
	// one transaction, and only if the state is still was. The rows may be shared, so Commit must
	// not change them.
	Commit(ctx context.Context, was, next exactlyonce.State, rows []Row) error
	Close() error
}

// Batcher is a Sink with its own limit of a batch's size.
type Batcher interface {
	// Most is the maximum number of records of a batch.
	Most() int
}
