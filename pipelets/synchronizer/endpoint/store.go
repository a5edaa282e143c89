// Package endpoint defines the interfaces between the synchronizer and the stores.
package endpoint

import (
	"context"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Record is a record from a source.
type Record struct {
	Key     string // the key without the source's prefix
	Value   []byte
	Deleted bool
	Version uint64               // the source's own version number: a revision or an offset
	At      exactlyonce.Position // position after this record; a reader that continues from it gets the next record
	// describes a part of the source's history that is missing before this record; empty if nothing
	// is missing
	Gap string
}

// Row is a row for a destination.
type Row struct {
	Key     string // the key without the destination's prefix
	Value   []byte
	Deleted bool
}

// Rows converts records to rows without changes.
func Rows(records []Record) (rows []Row) {
	for _, r := range records {
		rows = append(rows, Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted})
	}
	return rows
}

// Source is a store that is read in a fixed order, from any position in it.
type Source interface {
	// Read returns records after a position, and the position of the last returned record. It waits
	// until there are records, or until ctx ends. If ctx ends, it returns no records.
	Read(ctx context.Context, from exactlyonce.Position, most int) ([]Record, exactlyonce.Position, error)
	Close() error
}

// Gapped is a Source that can notice that a part of its history is missing before the next record.
type Gapped interface {
	// Gap describes what is missing before the next record. It returns "" if nothing is missing.
	Gap() string
}

// Gap describes what is missing in a source before the next record, if the source is Gapped.
func Gap(s Source) string {
	if g, ok := s.(Gapped); ok {
		return g.Gap()
	}
	return ""
}

// Sink is a destination for one pipelet and one of the pipelet's sources.
type Sink interface {
	// Open returns the state that the destination has stored for the pipelet.
	Open(ctx context.Context) (exactlyonce.State, error)
	// Commit writes rows and the state next. If the pipelet requests exactly-once, Commit writes
	// both in one transaction, and only if the stored state is still was. Several sinks may share
	// the rows, so Commit must not change them.
	Commit(ctx context.Context, was, next exactlyonce.State, rows []Row) error
	Close() error
}

// Batcher is a Sink that limits the size of batches.
type Batcher interface {
	// Most is the maximum number of records of a batch.
	Most() int
}
