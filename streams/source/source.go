// Package source is the interface of sources, which fill streams. A source gets the position to
// continue from, and a function to append that waits for slow consumers. docs/streams.md lists the
// sources; each is a package with this one job.
package source

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

// Source fills the partitions of a stream.
type Source interface {
	// Run fills one partition until ctx ends, or until it cannot continue: then it is run again
	// after a while, and continues at the sink's position. It runs for each partition separately,
	// so a slow consumer of one holds up no other. Everything that has an order (a key, a subject)
	// must be in one partition: Partition says in which.
	Run(ctx context.Context, to Sink) error
}

// Keeper is a source to whose origin programs append, by the node API. Their records come into the
// stream like all others there.
type Keeper interface {
	Source
	// Keep has the origin keep entries, in their order, and says how it numbers those that it keeps
	// for sure: the first ones, all if there is no error. Whether it keeps the next one the error
	// says; those after that it does not.
	Keep(ctx context.Context, entries []Entry) (numbers []uint64, err error)
}

// Entry is a program's record for an origin.
type Entry struct {
	Data    []byte
	Subject string // "": that of the source
	ID      string // by which the origin recognizes a repetition; "": none
}

// Maker makes a source for a program's request in a namespace, or returns why it may not have it.
// The program chooses the configuration; the operator has told the maker what it may ask for.
type Maker func(namespace string, c nodeapi.StreamSource) (Source, error)

// Sink is a partition of a stream, as its source sees it. It is for one goroutine.
type Sink interface {
	// Partition returns its number, and the number of partitions.
	Partition() (n, of int)
	// MaxRecord is how many bytes of data a record may have.
	MaxRecord() int
	// Had yields the existing records, in order. They must not be kept.
	Had(tell func(stream.Record))
	// Place returns the source's position.
	Place() Place
	// Note writes down how far the source is beyond its last record. It is there again after the
	// server was killed. It costs writing a file.
	Note(Note) error
	// Append appends all records, for which it waits until ctx or the stream ends. What was
	// appended before an error stays. A record larger than MaxRecord is an error.
	Append(ctx context.Context, records []stream.Record) error
	// Missed counts what the source cannot report, because it was gone or too large.
	Missed(n uint64)
}

// Place is the position of a source in a partition.
type Place struct {
	// Next is the offset of the next record: 0, if there never was one.
	Next uint64
	// Mark is the newest record's.
	Mark uint64
	// Note is the last note.
	Note Note
}

// Note is what a source writes down in addition to its records.
type Note struct {
	// Origin identifies what marks refer to. If it is another one, they say nothing.
	Origin string `json:"origin,omitempty"`
	// Mark is the position: everything for this partition at or before it was reported.
	Mark uint64 `json:"mark,omitempty"`
}
