// Package source defines the interface of sources, which fill streams with records. A source gets
// the position to continue from, and a function to append records. That function waits for slow
// consumers. docs/streams.md lists the sources, each of which is a package.
package source

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

// Source appends records from an origin, such as etcd, to the partitions of a stream.
type Source interface {
	// Run fills one partition until ctx ends or the source cannot continue. In the second case it
	// is run again after a pause, and continues at the sink's position. A separate Run serves each
	// partition, so a slow consumer of one partition does not delay other partitions. If the order
	// of some records matters, for example those of a key, they must be in the same partition. The
	// function Partition determines it.
	Run(ctx context.Context, to Sink) error
}

// Keeper is a source to whose origin programs can append through the node API. These records come
// into the stream in the same way as all other records of the origin.
type Keeper interface {
	Source
	// Keep makes the origin store entries in order. It returns the origin's numbers for the entries
	// that are certainly stored. Without an error, all entries are stored. With an error, only the
	// first entries are stored, and the error says whether the next entry may have been stored.
	// Later entries are not stored.
	Keep(ctx context.Context, entries []Entry) (numbers []uint64, err error)
}

// Entry is a record of a program for the origin of a stream.
type Entry struct {
	Data    []byte
	Subject string // the record's subject; empty means the source's subject
	ID      string // lets the origin recognize a record that is sent again; may be empty
}

// Maker makes a source for a program's request in a namespace. If the request is denied, it returns
// an error with the reason. The program chooses the configuration c, and the operator configures
// which ones are allowed.
type Maker func(namespace string, c nodeapi.StreamSource) (Source, error)

// Sink gives a source access to one partition of a stream. Only one goroutine may use it.
type Sink interface {
	// Partition returns the number of the partition, and the number of partitions.
	Partition() (n, of int)
	// MaxRecord returns the maximum number of bytes of data of a record.
	MaxRecord() int
	// Had calls tell with each existing record, in order. The record is valid only during the call.
	Had(tell func(stream.Record))
	// Place returns the source's position.
	Place() Place
	// Note stores how far the source has got beyond its last record. The note survives a crash of
	// the server. Each call writes a file.
	Note(Note) error
	// Append appends all records. It waits for slow consumers until ctx or the stream ends. If it
	// fails, the records that were already appended remain. A record larger than MaxRecord is an
	// error.
	Append(ctx context.Context, records []stream.Record) error
	// Missed counts events that the source cannot report, because they are lost or too large.
	Missed(n uint64)
}

// Place is the position of a source in a partition.
type Place struct {
	// Next is the offset of the next record. It is 0 if there was never a record.
	Next uint64
	// Mark is the mark of the newest record.
	Mark uint64
	// Note is the last note that the source has stored.
	Note Note
}

// Note is what a source stores in addition to its records.
type Note struct {
	// Origin identifies the origin that assigned the marks. Marks of different origins cannot be
	// compared.
	Origin string `json:"origin,omitempty"`
	// Mark is the source's position in the origin. Everything for this partition up to this
	// position was reported.
	Mark uint64 `json:"mark,omitempty"`
}
