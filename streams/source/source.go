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
	// Run fills one partition until ctx ends, or it cannot continue: then it is run again after a
	// while, and continues where the sink says that it was. It is run for each partition alongside
	// the others, so a consumer that is waited for in one holds up no other. All of what has an
	// order (a key, a subject) is to be in one partition: Partition says in which.
	Run(ctx context.Context, to Sink) error
}

// Keeper is a source to whose origin programs append, by the node API. What they append comes into
// the stream as all else that is there does.
type Keeper interface {
	Source
	// Keep has the origin keep entries, in their order, and says how it numbers those that it keeps
	// for sure: the first ones, all if there is no error. Whether it keeps the next one the error
	// says; those after that it does not.
	Keep(ctx context.Context, entries []Entry) (numbers []uint64, err error)
}

// Entry is what a program appends to an origin.
type Entry struct {
	Data    []byte
	Subject string // "": that of the source
	ID      string // by which the origin knows that it has it; "": there is none
}

// Maker makes a source of what a program asks for in a namespace, or says why it may not have it.
// The program chooses what stands in the configuration: what it may ask for, the maker knows from
// the operator.
type Maker func(namespace string, c nodeapi.StreamSource) (Source, error)

// Sink is a partition of a stream, as its source sees it. It is for one goroutine.
type Sink interface {
	// Partition is which it is, of how many.
	Partition() (n, of int)
	// MaxRecord is how many bytes of data a record may have.
	MaxRecord() int
	// Had tells the records that are there, in their order. They are not to be kept.
	Had(tell func(stream.Record))
	// Place is where the source was.
	Place() Place
	// Note writes down how far the source is beyond its last record. It is there again after the
	// server was killed. It costs writing a file.
	Note(Note) error
	// Append appends all records, for which it waits until ctx or the stream ends. What was
	// appended before an error stays. Larger records than MaxRecord are an error.
	Append(ctx context.Context, records []stream.Record) error
	// Missed counts what the source cannot tell: it was gone, or too large.
	Missed(n uint64)
}

// Place is where a source was in a partition.
type Place struct {
	// Next is the offset of the next record: 0, if there never was one.
	Next uint64
	// Mark is the newest record's.
	Mark uint64
	// Note is what was noted last.
	Note Note
}

// Note is what a source writes down alongside its records.
type Note struct {
	// Origin is what marks are of. If it is another one, they say nothing.
	Origin string `json:"origin,omitempty"`
	// Mark is how far it is: nothing for this partition is at or before it that was not told.
	Mark uint64 `json:"mark,omitempty"`
}
