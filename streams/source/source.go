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
	// Run fills one partition until ctx ends or the source cannot continue. In the latter case it
	// is run again after a pause, and continues at the sink's position. It runs separately for each
	// partition, so a slow consumer of one partition does not delay others. All records of a key or
	// a subject, whose order matters, must be in one partition: Partition determines it.
	Run(ctx context.Context, to Sink) error
}

// Keeper is a source to whose origin programs append through the node API. Their records come into
// the stream like all other records of the origin.
type Keeper interface {
	Source
	// Keep makes the origin store entries in order, and returns the origin's numbers for the
	// entries that are certainly stored: the first ones, and all of them if there is no error. The
	// error tells whether the next one may have been stored. Later ones are not stored.
	Keep(ctx context.Context, entries []Entry) (numbers []uint64, err error)
}

// Entry is a program's record for an origin.
type Entry struct {
	Data    []byte
	Subject string // "": the source's subject
	ID      string // lets the origin recognize a repetition; "": none
}

// Maker makes a source for a program's request in a namespace, or returns why the request is
// denied. The program chooses the configuration. The operator has configured what it may request.
type Maker func(namespace string, c nodeapi.StreamSource) (Source, error)

// Sink is a partition of a stream, as its source accesses it. It is for one goroutine.
type Sink interface {
	// Partition returns its number, and the number of partitions.
	Partition() (n, of int)
	// MaxRecord returns the maximum number of bytes of data of a record.
	MaxRecord() int
	// Had yields the existing records, in order. They are valid only during the call.
	Had(tell func(stream.Record))
	// Place returns the source's position.
	Place() Place
	// Note stores how far the source has got beyond its last record. The note survives a crash of
	// the server. It costs writing a file.
	Note(Note) error
	// Append appends all records, for which it waits until ctx or the stream ends. Records appended
	// before an error stay. A record larger than MaxRecord is an error.
	Append(ctx context.Context, records []stream.Record) error
	// Missed counts events that the source cannot report, because they were gone or too large.
	Missed(n uint64)
}

// Place is a source's position in a partition.
type Place struct {
	// Next is the offset of the next record: 0, if there never was one.
	Next uint64
	// Mark is the mark of the newest record.
	Mark uint64
	// Note is the last note.
	Note Note
}

// Note is what a source stores in addition to its records.
type Note struct {
	// Origin identifies the origin to which marks refer. Marks of another origin have no meaning.
	Origin string `json:"origin,omitempty"`
	// Mark is the position: everything for this partition at or before it was reported.
	Mark uint64 `json:"mark,omitempty"`
}
