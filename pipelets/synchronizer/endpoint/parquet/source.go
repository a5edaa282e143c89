package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const (
	// pause is the interval at which Source checks for the next file.
	pause = 50 * time.Millisecond
	// maxGroup is the maximum size of a row group, in bytes. It is limited because a row group is
	// read as a whole.
	maxGroup = 256 << 20
	// chunk is the number of rows that are decoded at once.
	chunk = 1024
)

// Source reads the files of a folder that are named NUMBER.parquet, with consecutive numbers. A
// destination of this package may write them, or another program. Such a program must write a file
// under another name and then rename it. The files have a column key, and the columns value, bytes
// and deleted as needed, as in a destination. The Version of a record is its file's number times
// 2^32, plus the row's number in the file, from 1 on.
type Source struct {
	folder string
	open   *reading
	at     exactlyonce.Position // position of the last returned record
}

// NewSource makes a source.
func NewSource(spec pipeletapi.Parquet) (*Source, error) {
	return &Source{folder: filepath.Clean(spec.Path)}, nil
}

// Close closes the open file.
func (s *Source) Close() error {
	if s.open != nil {
		s.open.close()
		s.open = nil
	}
	return nil
}

// Read implements endpoint.Source. The Seq of a position is the file's number, and Sub is the row's
// number in the file, from 0 on.
func (s *Source) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	for {
		records, err := s.read(ctx, from, most)
		switch {
		case ctx.Err() != nil && len(records) == 0:
			return nil, from, nil
		case err != nil:
			s.Close()
			return nil, from, fault(err, "reading "+s.folder)
		case len(records) > 0:
			s.at = records[len(records)-1].At
			return records, s.at, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, from, nil
		}
	}
}

// read returns the records after a position that already exist.
func (s *Source) read(ctx context.Context, from exactlyonce.Position, most int) (records []endpoint.Record, err error) {
	if s.open != nil && s.at != from {
		s.Close()
	}
	for len(records) < most {
		if s.open == nil {
			if err := s.begin(ctx, from); err != nil || s.open == nil {
				return records, err
			}
			s.at = from
		}
		more, err := s.open.read(most - len(records))
		if err != nil {
			return nil, err
		}
		records = append(records, more...)
		if len(more) > 0 {
			from = more[len(more)-1].At
			continue
		}
		// The source has read the whole file. If the file has no rows, a file with rows may still
		// replace it, until the next file exists.
		n, empty := s.open.number, s.open.rows == 0
		if _, err := os.Lstat(numbered(s.folder, n+1)); errors.Is(err, fs.ErrNotExist) {
			if empty {
				s.Close()
			}
			return records, nil
		} else if err != nil {
			return nil, err
		}
		s.Close()
		if s.open, err = s.file(ctx, n+1, from); err != nil {
			return nil, err
		}
		if empty { // the empty file may have been replaced before the next file appeared
			again, err := s.file(ctx, n, from)
			if err != nil {
				return nil, err
			}
			if again.rows > 0 {
				s.Close()
				s.open = again
			} else {
				again.close()
			}
		}
	}
	return records, nil
}

// begin opens the file of a position or, if that file was deleted, the next file. If neither exists
// yet, it opens no file.
func (s *Source) begin(ctx context.Context, from exactlyonce.Position) error {
	n := from.Seq
	if n == 0 {
		low, _, err := span(s.folder)
		if err != nil {
			return err
		}
		if low == 0 {
			return s.unnumbered()
		}
		n = low
	}
	r, err := s.file(ctx, n, from)
	if err == nil {
		s.open = r
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The file of the position may be deleted, because it was read. The next file may not.
	r, next := s.file(ctx, n+1, from)
	if next == nil {
		s.open = r
		return nil
	}
	if !errors.Is(next, fs.ErrNotExist) {
		return next
	}
	low, _, err := span(s.folder)
	if err != nil {
		return err
	}
	return exactlyonce.Errorf(exactlyonce.Refused, "the file %s is gone, and so is the next one, while the pipelet has yet to read on "+
		"from there (the lowest number that is there is %d): put them back, or give the pipelet another name to begin "+
		"anew", numbered(s.folder, n), low)
}

// unnumbered returns an error if a folder has files, but no file with a number. Source would never
// read these files.
func (s *Source) unnumbered() error {
	others, err := filepath.Glob(filepath.Join(s.folder, "*"+suffix))
	if err != nil || len(others) == 0 {
		return err
	}
	return exactlyonce.Errorf(exactlyonce.Refused, "%s: a source's files are called by numbers of %d digits, one after the other, "+
		"such as %s, and none of those in %s is", filepath.Base(others[0]), digits, filepath.Base(numbered("", 1)), s.folder)
}

// file opens a file, and skips to the row after a position if the position is in this file.
func (s *Source) file(ctx context.Context, n uint64, from exactlyonce.Position) (*reading, error) {
	r, err := newReading(ctx, numbered(s.folder, n), n)
	if err != nil {
		return nil, err
	}
	if from.Seq > 0 && r.lake != from.Epoch {
		r.close()
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "the files in %s are not those that the destination has the position of: "+
			"give the pipelet another name to begin anew", s.folder)
	}
	if from.Seq == n && from.Sub != "" {
		row, err := strconv.ParseInt(from.Sub, 10, 64)
		if err != nil || row < 0 || row >= r.rows {
			r.close()
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "the position %q in the destination is no row of %s", from.Sub, r.name)
		}
		r.skip = row + 1
	}
	return r, nil
}

// reading is a file that is open for reading.
type reading struct {
	name   string
	lake   string
	number uint64
	rows   int64
	f      *os.File
	r      pqarrow.RecordReader // nil if the file has no rows
	// indexes of the columns key, value, bytes and deleted among the columns read; -1 for a missing
	// column
	place [4]int
	batch arrow.RecordBatch // the batch that the reader returned last
	first int64             // number, in the file, of the first row of the batch
	skip  int64             // number of rows to skip, because they were already returned
}

func newReading(ctx context.Context, name string, n uint64) (_ *reading, err error) {
	f, p, err := open(name)
	if err != nil {
		return nil, err
	}
	r := &reading{name: name, number: n, f: f, rows: p.NumRows()}
	defer func() {
		if p := recover(); p != nil {
			err = exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %v", name, p)
		}
		if err != nil {
			r.close()
		}
	}()
	about, err := footerOf(p)
	if err != nil {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s: %w", name, err)
	}
	r.lake = about.Lake
	var groups []int
	for i := range p.NumRowGroups() {
		if size := p.RowGroup(i).MetaData().TotalByteSize(); size > maxGroup || size < 0 {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s has a row group of %d bytes, and %d are taken: write smaller ones",
				name, size, maxGroup)
		}
		groups = append(groups, i)
	}
	files, err := pqarrow.NewFileReader(p, pqarrow.ArrowReadProperties{BatchSize: chunk}, memory.DefaultAllocator)
	if err != nil {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %w", name, err)
	}
	// Ignore the in-memory schema of the library that wrote the file, because Parquet's types are
	// authoritative.
	if files.Manifest, err = pqarrow.NewSchemaManifest(p.MetaData().Schema, nil, &files.Props); err != nil {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %w", name, err)
	}
	columns, err := r.columns(files.Manifest.Fields)
	if err != nil || r.rows == 0 {
		return r, err
	}
	if r.r, err = files.GetRecordReader(context.WithoutCancel(ctx), columns, groups); err != nil {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %w", name, err)
	}
	return r, nil
}

// columns selects the columns to read, and checks their types.
func (r *reading) columns(have []pqarrow.SchemaField) (leaves []int, err error) {
	want := []struct {
		name string
		are  []arrow.Type
	}{
		{"key", []arrow.Type{arrow.STRING, arrow.BINARY}},
		{"value", []arrow.Type{arrow.STRING, arrow.BINARY}},
		{"bytes", []arrow.Type{arrow.BINARY, arrow.STRING}},
		{"deleted", []arrow.Type{arrow.BOOL}},
	}
	for i, w := range want {
		var at []pqarrow.SchemaField
		for _, f := range have {
			if f.Field.Name == w.name {
				at = append(at, f)
			}
		}
		if r.place[i] = -1; len(at) == 0 && i > 0 {
			continue
		}
		if len(at) != 1 {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s has %d columns %s: a source's files have one", r.name, len(at), w.name)
		}
		is := at[0].Field.Type
		fits := false
		for _, t := range w.are {
			fits = fits || is.ID() == t
		}
		if !fits {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s: its column %s is of the type %s, and is to be text, or of deleted "+
				"a truth value: cast it where it is written", r.name, w.name, is)
		}
		r.place[i] = len(leaves) // the reader returns the columns in this order
		leaves = append(leaves, at[0].ColIndex)
	}
	if r.place[1] == -1 && r.place[2] == -1 {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s has neither a column value nor one that is called bytes", r.name)
	}
	return leaves, nil
}

func (r *reading) close() {
	if r.r != nil {
		r.r.Release()
	}
	r.f.Close()
}

// read returns the next records. It returns none at the end of the file.
func (r *reading) read(most int) (records []endpoint.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %v", r.name, p)
		}
	}()
	for len(records) < most && r.r != nil {
		if r.batch == nil || r.skip >= r.first+r.batch.NumRows() {
			if r.batch != nil {
				r.first += r.batch.NumRows()
				r.batch = nil
			}
			if !r.r.Next() {
				if err := r.r.Err(); err != nil && !errors.Is(err, io.EOF) {
					return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s cannot be read as Parquet: %w", r.name, err)
				}
				if r.first != r.rows {
					return nil, exactlyonce.Errorf(exactlyonce.Refused, "%s says that it has %d rows, and has %d", r.name, r.rows, r.first)
				}
				break
			}
			r.batch = r.r.RecordBatch()
			continue
		}
		record, err := r.record(int(r.skip - r.first))
		if err != nil {
			return nil, err
		}
		records = append(records, record)
		r.skip++
	}
	return records, nil
}

// record converts row i of the batch to a record.
func (r *reading) record(i int) (out endpoint.Record, err error) {
	cell := func(column int) (b []byte, ok bool) {
		if r.place[column] == -1 {
			return nil, false
		}
		switch a := r.batch.Column(r.place[column]).(type) {
		case *array.String:
			return []byte(a.Value(i)), !a.IsNull(i)
		case *array.Binary:
			return append([]byte{}, a.Value(i)...), !a.IsNull(i)
		case *array.Boolean:
			return nil, !a.IsNull(i) && a.Value(i)
		}
		return nil, false
	}
	key, ok := cell(0)
	if !ok {
		return out, exactlyonce.Errorf(exactlyonce.Refused, "%s: the key of row %d is NULL", r.name, r.skip)
	}
	out = endpoint.Record{
		Key:     string(key),
		Version: r.number<<32 | uint64(r.skip+1),
		At:      exactlyonce.Position{Epoch: r.lake, Seq: r.number, Sub: fmt.Sprint(r.skip)},
	}
	if _, out.Deleted = cell(3); out.Deleted {
		return out, nil
	}
	if out.Value, ok = cell(1); ok {
		return out, nil
	}
	if out.Value, ok = cell(2); !ok { // a NULL value means a deletion, as in the rows of a flow
		out.Value, out.Deleted = nil, true
	}
	return out, nil
}
