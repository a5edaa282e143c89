// Package streamrecords implements a source and a destination for records in streams of the
// worker's node.
//
// A destination is a stream of one partition to which no other program appends. The rows of a
// pipelet form a sequence, and so do the records of the partition. So the number of a row
// determines its offset. An append that requires this offset happens only once, even after crashes.
// A second stream, pipelets-HASH, stores the source's position. Before each batch the worker
// appends a record to that stream. The record has the positions before and after the batch, and the
// offset of the batch's first row.
package streamrecords

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/nodeerr"
)

const (
	connectTimeout = 5 * time.Second
	callTimeout    = 5 * time.Second
	// wait is the timeout, at the server, of a read.
	wait = time.Second
)

// Check reports errors in a specification.
func Check(spec pipeletapi.Stream) error {
	if spec.Name == "" {
		return errors.New("stream.name: it is needed")
	}
	return nil
}

// link holds a client of the node API, which connects on first use.
type link struct {
	spec pipeletapi.Stream
	c    *node.Client
}

func (l *link) get(ctx context.Context) (*node.Client, error) {
	if l.c != nil {
		return l.c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := node.Connect(ctx, node.Config{Namespace: l.spec.Namespace, Agent: "netcraq-pipelets", Wait: connectTimeout})
	if err != nil {
		return nil, fmt.Errorf("connecting to the node API: %w", err)
	}
	l.c = c
	return c, nil
}

// Close closes the client.
func (l *link) Close() error {
	if l.c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := l.c.Close(ctx)
	l.c = nil
	return err
}

// open opens the stream, and returns the client and the stream's description.
func (l *link) open(ctx context.Context) (*node.Client, *nodeapi.StreamAnswer, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.OpenStream(ctx, l.spec.Name, nil)
	if err != nil {
		return nil, nil, nodeerr.Fault(err, "the stream "+l.spec.Name)
	}
	if n := len(s.State); n != 1 {
		return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "the stream %s has %d partitions, and a pipelet takes one: make another "+
			"stream for it", l.spec.Name, n)
	}
	return c, s, nil
}

// Source reads a stream of one partition. The offset of a record is both its key and its Version.
type Source struct{ link }

// NewSource makes a source.
func NewSource(spec pipeletapi.Stream) (*Source, error) { return &Source{link{spec: spec}}, nil }

// Read implements endpoint.Source. The Epoch of a position is the stream's incarnation, and its Seq
// is the offset.
func (s *Source) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	c, err := s.get(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, from, nil
		}
		return nil, from, err
	}
	d := nodeapi.ReadData{StreamData: nodeapi.StreamData{Stream: s.spec.Name}, MaxRecords: most,
		WaitMillis: int(wait.Milliseconds())}
	if d.From = nodeapi.FromEarliest; from != (exactlyonce.Position{}) {
		next := from.Seq + 1
		d.From, d.Offset, d.Incarnation = "", &next, from.Epoch
	} else if _, _, err := s.open(ctx); err != nil {
		return nil, from, err
	}
	for ctx.Err() == nil {
		a, err := c.Read(ctx, d)
		switch {
		case ctx.Err() != nil:
			return nil, from, nil
		case err != nil:
			return nil, from, nodeerr.Fault(err, "reading the stream "+s.spec.Name)
		case from.Epoch != "" && a.Incarnation != from.Epoch:
			return nil, from, exactlyonce.Errorf(exactlyonce.Refused, "the stream %s was made anew since it was read: give the pipelet "+
				"another name to begin anew", s.spec.Name)
		case a.Missed > 0 && from != (exactlyonce.Position{}):
			return nil, from, exactlyonce.Errorf(exactlyonce.Refused, "%d records of the stream %s were overwritten before they were "+
				"read: give the pipelet another name to begin anew, and the stream a larger ring", a.Missed, s.spec.Name)
		}
		var out []endpoint.Record
		for i, r := range a.Records {
			value := r.ValueBase64
			if r.Value != nil {
				value = []byte(*r.Value)
			}
			offset := a.Offset + uint64(i)
			out = append(out, endpoint.Record{Key: fmt.Sprintf("%020d", offset), Value: value, Version: offset,
				At: exactlyonce.Position{Epoch: a.Incarnation, Seq: offset}})
		}
		if len(out) > 0 {
			return out, out[len(out)-1].At, nil
		}
	}
	return nil, from, nil
}

// Sink appends the values of rows to a stream of one partition. It drops the keys of rows, and does
// not append deletions.
type Sink struct {
	link
	name string // name of the stream that stores the positions
	log  uint64 // offset of the next record in the stream that stores the positions
	// incarnation is the incarnation of the stream. next is the offset of the next batch's first
	// row, and there is the offset at the end of the stream. Rows between next and there are
	// already written.
	incarnation string
	next, there uint64
}

// saved is a record in the stream that stores the positions.
type saved struct {
	Incarnation string            `json:"incarnation"`
	Was         exactlyonce.State `json:"was"`
	Next        exactlyonce.State `json:"next"`
	Offset      uint64            `json:"offset"` // offset of the batch's first row
	Rows        uint64            `json:"rows"`
}

// NewSink makes a destination. The argument name identifies the pipelet and its source.
func NewSink(spec pipeletapi.Stream, name string) (*Sink, error) {
	sum := sha256.Sum256([]byte(name))
	return &Sink{link: link{spec: spec}, name: "pipelets-" + hex.EncodeToString(sum[:8])}, nil
}

// Open implements endpoint.Sink. It creates the stream that stores the positions.
func (s *Sink) Open(ctx context.Context) (state exactlyonce.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, rows, err := s.open(ctx)
	if err != nil {
		return state, err
	}
	if rows.Config.Source != nil {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "the stream %s is filled by a source of its own: nobody can say there which "+
			"records have arrived. Name a stream that programs append to", s.spec.Name)
	}
	positions, err := c.OpenStream(ctx, s.name, &nodeapi.StreamConfig{ObjectBytes: 4096, Objects: 8,
		Slow: nodeapi.SlowSkip, Volatile: rows.Config.Volatile})
	if err != nil {
		return state, nodeerr.Fault(err, "making the stream with the positions, "+s.name)
	}
	var found saved
	if s.log = positions.State[0].Next; s.log > 0 {
		at := s.log - 1
		a, err := c.Read(ctx, nodeapi.ReadData{StreamData: nodeapi.StreamData{Stream: s.name}, Offset: &at,
			MaxRecords: 1})
		if err != nil {
			return state, nodeerr.Fault(err, "reading the position in "+s.name)
		}
		if len(a.Records) != 1 || a.Records[0].Value == nil ||
			json.Unmarshal([]byte(*a.Records[0].Value), &found) != nil {
			return state, exactlyonce.Errorf(exactlyonce.Refused, "the last record of the stream %s is no position", s.name)
		}
	}
	// Read the end of the stream only after the position. If another worker has appended rows
	// since, it has first appended a position. Then this worker's next append of a position fails.
	if _, rows, err = s.open(ctx); err != nil {
		return state, err
	}
	s.incarnation, s.there = rows.Incarnation, rows.State[0].Next
	if s.next = s.there; s.log == 0 {
		return state, nil
	}
	if found.Incarnation != s.incarnation || found.Offset > s.there {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "the stream %s was made anew since the pipelet has written to it: delete the "+
			"stream %s, too, to begin anew", s.spec.Name, s.name)
	}
	// An interrupted worker may have written the rows of the batch, or the first of them. They are
	// equal to the rows that come next.
	if s.next = found.Offset + found.Rows; s.there >= s.next {
		return found.Next, nil
	}
	s.next = found.Offset
	return found.Was, nil
}

// Commit implements endpoint.Sink. It first records the offset at which the rows will be, and then
// appends the rows.
func (s *Sink) Commit(ctx context.Context, was, next exactlyonce.State, rows []endpoint.Row) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, err := s.get(ctx)
	if err != nil {
		return exactlyonce.Errorf(exactlyonce.Temporary, "%w", err)
	}
	var values []nodeapi.RecordData
	for _, r := range rows {
		switch {
		case r.Deleted:
		case utf8.Valid(r.Value):
			text := string(r.Value)
			values = append(values, nodeapi.RecordData{Value: &text})
		default:
			values = append(values, nodeapi.RecordData{ValueBase64: r.Value})
		}
	}
	n := uint64(len(values))
	text, err := json.Marshal(saved{s.incarnation, was, next, s.next, n})
	if err != nil {
		return err
	}
	line := string(text)
	if err := s.append(ctx, c, s.name, s.log, []nodeapi.RecordData{{Value: &line}}); err != nil {
		return err
	}
	s.log++
	if done := s.there - s.next; done < n { // if the condition is false, all rows are already in the stream
		if err := s.append(ctx, c, s.spec.Name, s.there, values[done:]); err != nil {
			return err
		}
		s.there = s.next + n
	}
	s.next += n
	return nil
}

// append appends records to a stream at a given offset.
func (s *Sink) append(ctx context.Context, c *node.Client, name string, at uint64, records []nodeapi.RecordData) error {
	a, err := c.Append(ctx, nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: name}, Records: records, At: &at})
	if err != nil {
		// a later call of Open finds out whether the append succeeded
		return fmt.Errorf("appending to the stream %s: %w", name, err)
	}
	if a.Appended < len(records) {
		return fmt.Errorf("%d of %d records were appended to the stream %s: its consumers are slow", a.Appended,
			len(records), name)
	}
	return nil
}
