package parquet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pq "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const (
	// lockTimeout is the maximum time to wait for the lock. A worker holds the lock while it writes
	// one file.
	lockTimeout = 5 * time.Second
	lockPause   = 5 * time.Millisecond
)

// Sink writes files. Each batch is written exactly once, even if the pipelet does not request it.
type Sink struct {
	path   string // the folder in the pipelet's specification, which Sink does not create
	folder string // the pipelet's folder below path
	lock   *os.File
	number uint64 // number of the newest file; 0 if there is no file
	lake   string
}

// NewSink makes a destination. The argument name identifies the pipelet and its source.
func NewSink(spec pipeletapi.Parquet, name string) (*Sink, error) {
	path := filepath.Clean(spec.Path)
	return &Sink{path: path, folder: filepath.Join(path, filepath.FromSlash(name))}, nil
}

// Close releases the lock.
func (s *Sink) Close() error {
	if s.lock == nil {
		return nil
	}
	err := s.lock.Close()
	s.lock = nil
	return err
}

// Most implements endpoint.Batcher. The number is large because small files are slow to read.
func (s *Sink) Most() int { return 1000 }

// Open implements endpoint.Sink. It creates the pipelet's folder, but not the folder above it. So
// if a disk is not mounted, nothing is written in its place.
func (s *Sink) Open(ctx context.Context) (state exactlyonce.State, err error) {
	if at, err := os.Stat(s.path); err != nil || !at.IsDir() {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "there is no folder %s: make it, or mount what is to be there", s.path)
	}
	if err := s.make(); err != nil {
		return state, fault(err, "making the folder "+s.folder)
	}
	unlock, err := s.hold(ctx)
	if err != nil {
		return state, err
	}
	defer unlock()
	left, err := filepath.Glob(filepath.Join(s.folder, temporary+"*"))
	if err != nil {
		return state, err
	}
	// these files belong to dead workers, because a living worker writes only while it holds the
	// lock
	for _, name := range left {
		os.Remove(name)
	}
	_, s.number, err = span(s.folder)
	if err != nil {
		return state, fault(err, "listing "+s.folder)
	}
	if s.number == 0 {
		s.lake = rand.Text()
		return state, nil
	}
	f, _, err := s.newest()
	if err != nil {
		return state, err
	}
	s.lake = f.Lake
	return f.State, nil
}

// make creates the pipelet's folder, and syncs it to the disk.
func (s *Sink) make() error {
	rest, err := filepath.Rel(s.path, s.folder)
	if err != nil {
		return err
	}
	at := s.path
	for part := range strings.SplitSeq(rest, string(filepath.Separator)) {
		next := filepath.Join(at, part)
		if err := os.Mkdir(next, 0o755); err == nil {
			if err := sync(at); err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
		at = next
	}
	return nil
}

// hold acquires the lock of the folder. It opens the lock file each time, because the folder may
// have been replaced.
func (s *Sink) hold(ctx context.Context) (unlock func(), err error) {
	s.Close()
	name := filepath.Join(s.folder, lockName)
	if s.lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fault(err, "opening "+name)
	}
	for limit := time.Now().Add(lockTimeout); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { s.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, fault(err, "locking "+name)
		case ctx.Err() != nil || time.Now().After(limit):
			return nil, exactlyonce.Errorf(exactlyonce.Temporary, "another process has the lock %s", name)
		}
	}
}

// newest returns the footer of the newest file, and the file's number of rows.
func (s *Sink) newest() (f footer, rows int64, err error) {
	name := numbered(s.folder, s.number)
	h, r, err := open(name)
	if err != nil {
		return f, 0, fault(err, "reading the position in the destination")
	}
	defer h.Close()
	if f, err = footerOf(r); err == nil && f.Lake == "" {
		err = errors.New("it has none")
	}
	if err != nil {
		return f, 0, exactlyonce.Errorf(exactlyonce.Refused, "%s has no position in its footer: %w. Move it away, if it is not "+
			"of this pipelet", name, err)
	}
	return f, r.NumRows(), nil
}

// Commit implements endpoint.Sink.
func (s *Sink) Commit(ctx context.Context, was, next exactlyonce.State, rows []endpoint.Row) error {
	batch, err := columns(rows)
	if err != nil {
		return err
	}
	defer batch.Release()
	unlock, err := s.hold(ctx)
	if errors.Is(err, fs.ErrNotExist) { // another disk or no disk is mounted at the folder, which Open will notice
		return exactlyonce.Errorf(exactlyonce.Conflict, "the pipelet's folder is gone: %w", err)
	}
	if err != nil {
		return err
	}
	defer unlock()
	n := s.number + 1
	if _, err := os.Lstat(numbered(s.folder, n)); err == nil {
		return exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fault(err, "looking at "+s.folder)
	}
	replace := false
	if s.number > 0 {
		f, had, err := s.newest()
		if errors.Is(err, fs.ErrNotExist) {
			return exactlyonce.Errorf(exactlyonce.Conflict, "the newest file of this pipelet is gone: %w", err)
		}
		if err != nil {
			return err
		}
		if f.State != was || f.Lake != s.lake {
			return exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
		}
		if replace = had == 0; replace {
			n = s.number
		}
	}
	name, err := s.write(footer{Lake: s.lake, State: next}, batch)
	if name != "" {
		defer os.Remove(name)
	}
	if err != nil {
		return fault(err, "writing to "+s.folder)
	}
	put := os.Link
	if replace {
		put = os.Rename
	}
	if err := put(name, numbered(s.folder, n)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
		}
		return fault(err, "writing to "+s.folder)
	}
	if err := sync(s.folder); err != nil { // the file exists, but would be lost if the machine crashed
		return exactlyonce.Errorf(exactlyonce.Unknown, "bringing %s to the disk: %w", s.folder, err)
	}
	s.number = n
	return nil
}

// write writes a file under a temporary name, which readers ignore, and syncs it to the disk.
func (s *Sink) write(f footer, batch arrow.RecordBatch) (name string, err error) {
	out, err := os.CreateTemp(s.folder, temporary)
	if err != nil {
		return "", err
	}
	defer out.Close()
	text, err := json.Marshal(f)
	if err != nil {
		return out.Name(), err
	}
	if err := out.Chmod(0o644); err != nil {
		return out.Name(), err
	}
	properties := pq.NewWriterProperties(pq.WithCompression(compress.Codecs.Snappy))
	// Hide the file's Close method, because the library would call it, but the file must stay open
	// for the sync.
	w, err := pqarrow.NewFileWriter(schema, struct{ io.Writer }{out}, properties, pqarrow.DefaultWriterProps())
	if err != nil {
		return out.Name(), err
	}
	if err := w.AppendKeyValueMetadata(footerKey, string(text)); err != nil {
		return out.Name(), err
	}
	if batch.NumRows() > 0 {
		if err := w.WriteBuffered(batch); err != nil {
			return out.Name(), err
		}
	}
	if err := w.Close(); err != nil {
		return out.Name(), err
	}
	return out.Name(), out.Sync()
}

// columns converts rows to an Arrow record batch.
func columns(rows []endpoint.Row) (arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range rows {
		if !utf8.ValidString(r.Key) {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "the key %q is not UTF-8, as a column of text has to be: give the "+
				"pipelet a flow that makes text of it", r.Key)
		}
		b.Field(0).(*array.StringBuilder).Append(r.Key)
		text, bytes := b.Field(1).(*array.StringBuilder), b.Field(2).(*array.BinaryBuilder)
		switch {
		case r.Deleted:
			text.AppendNull()
			bytes.AppendNull()
		case utf8.Valid(r.Value):
			text.Append(string(r.Value))
			bytes.AppendNull()
		default:
			text.AppendNull()
			bytes.Append(r.Value)
		}
		b.Field(3).(*array.BooleanBuilder).Append(r.Deleted)
	}
	return b.NewRecordBatch(), nil
}

// sync syncs the entries of a folder to the disk.
func sync(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
