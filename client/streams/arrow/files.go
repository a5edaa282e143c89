package streamsarrow

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams/internal/passing"
)

const maxFiles = nodeapi.MaxRecordFiles

// FilesConfig says whose files they are.
type FilesConfig struct {
	// Socket is the address of the node's server: a path. "": that of nodeapi.FindSocket.
	Socket string
	// Namespace is the files'. "": the program's own.
	Namespace string
	// Timeout bounds requests without a context: those of an Allocator. 0: 30 s.
	Timeout time.Duration
}

// Files are a node's files in memory, over its Unix socket: written once, mapped by others, and
// referred to by records. The node holds what is mapped for as long as the connection lasts. They
// are safe for concurrent use.
type Files struct {
	cfg     FilesConfig
	schemas schemas
	copied  atomic.Int64
	shared  atomic.Int64

	connecting sync.Mutex
	mu         sync.Mutex
	conn       *connection
	known      map[fileName]*Mapped
	places     []*Mapped // by address
	allocators map[*Allocator]struct{}
}

// NewFiles are the files of a node. It connects when it is to.
func NewFiles(cfg FilesConfig) *Files {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Files{cfg: cfg, known: map[fileName]*Mapped{}, allocators: map[*Allocator]struct{}{}}
}

// Copied counts the bytes of columns that were copied into new files and records.
func (f *Files) Copied() int64 { return f.copied.Load() }

// Shared counts the bytes of columns that were not copied, since they were in files.
func (f *Files) Shared() int64 { return f.shared.Load() }

// Close ends the connection. What is mapped stays mapped until it is released, but the node no
// longer holds it.
func (f *Files) Close() {
	f.mu.Lock()
	c := f.conn
	f.leave(nil)
	f.mu.Unlock()
	if c != nil {
		c.end(errors.New("it was closed"))
	}
}

// leave forgets what a former connection held. f.mu is held.
func (f *Files) leave(next *connection) {
	f.conn = next
	clear(f.known)
	f.places = nil
}

// connection is the one that is there, or a new one.
func (f *Files) connection(ctx context.Context) (*connection, error) {
	f.connecting.Lock()
	defer f.connecting.Unlock()
	f.mu.Lock()
	c := f.conn
	f.mu.Unlock()
	if c != nil && !c.ended() {
		return c, nil
	}
	c, err := connect(ctx, f.cfg.Socket)
	if err != nil {
		if node.CodeOf(err) == "" && ctx.Err() == nil {
			err = nodeapi.Errorf(nodeapi.CodeUnavailable, "try again", "%v", err)
		}
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(c)
	return c, nil
}

// asked is the result of a request that holds a file.
type asked struct {
	conn *connection
	id   uint64
	nodeapi.FileAnswer
	fds []int
}

func (f *Files) ask(ctx context.Context, function string, data any) (*asked, error) {
	c, err := f.connection(ctx)
	if err != nil {
		return nil, err
	}
	id, a, err := c.ask(ctx, function, data)
	if err != nil {
		return nil, err
	}
	got := &asked{conn: c, id: id, fds: a.fds}
	if err := json.Unmarshal(a.data, &got.FileAnswer); err != nil {
		passing.Close(a.fds)
		c.cancel(id)
		return nil, err
	}
	return got, nil
}

// Mapped is a file that is mapped for reading. It is reference-counted, like Arrow's objects; each
// of its buffers has a reference, too. With the last reference it is unmapped, and released at the
// node.
type Mapped struct {
	id     fileName
	memory []byte
	refs   atomic.Int64
	files  *Files
	conn   *connection
	hold   uint64 // the request that holds it
}

// Name is the file's.
func (m *Mapped) Name() string { return hex.EncodeToString(m.id[:]) }

// Bytes are all of it.
func (m *Mapped) Bytes() []byte { return m.memory }

// Buffer is all of it, for columns. It has a reference of its own.
func (m *Mapped) Buffer() *memory.Buffer {
	return memoryOf{m.memory, m}.buffer(0, uint64(len(m.memory)))
}

// Retain adds a reference.
func (m *Mapped) Retain() { m.refs.Add(1) }

// take adds a reference, unless there are none any more.
func (m *Mapped) take() bool {
	for {
		n := m.refs.Load()
		if n == 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release takes a reference away.
func (m *Mapped) Release() {
	if m.refs.Add(-1) != 0 {
		return
	}
	f := m.files
	f.mu.Lock()
	if f.known[m.id] == m {
		delete(f.known, m.id)
	}
	// Before it is unmapped: after that, something else may be mapped there.
	f.places = slices.DeleteFunc(f.places, func(p *Mapped) bool { return p == m })
	f.mu.Unlock()
	unmap(m.memory)
	m.conn.cancel(m.hold)
}

func mapFile(fd int, size int64, at unsafe.Pointer, protection, flags int) ([]byte, error) {
	if !passing.Whole(fd, size) {
		return nil, garbage("a file that has not %d bytes for good", size)
	}
	p, err := unix.MmapPtr(fd, 0, at, uintptr(size), protection, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("mapping a file: %w", err)
	}
	return unsafe.Slice((*byte)(p), size), nil
}

func unmap(b []byte) { _ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))) }

// adopt maps the result of a request; the last descriptor is for reading. On failure nothing is
// held any more.
func (f *Files) adopt(a *asked) (m *Mapped, err error) {
	defer passing.Close(a.fds)
	m = &Mapped{files: f, conn: a.conn, hold: a.id}
	m.refs.Store(1)
	if m.id, err = parseName(a.File); err == nil && len(a.fds) == 1 {
		m.memory, err = mapFile(a.fds[0], a.Bytes, nil, unix.PROT_READ, 0)
	} else if err == nil {
		err = garbage("%d descriptors came", len(a.fds))
	}
	if err != nil {
		a.conn.cancel(a.id)
		return nil, err
	}
	return m, nil
}

func parseName(text string) (name fileName, err error) {
	of, err := hex.DecodeString(text)
	if err != nil || len(of) != len(name) {
		return name, garbage("a file %.40q", text)
	}
	return fileName(of), nil
}

// enter registers a file by its name and its address. If the file is registered already, enter
// returns that one, and releases this one.
func (f *Files) enter(m *Mapped) *Mapped {
	f.mu.Lock()
	if m.conn != f.conn { // it is not held by now: references to it would be refused
		f.mu.Unlock()
		return m
	}
	if other := f.known[m.id]; other != nil && other.take() {
		f.mu.Unlock()
		m.Release()
		return other
	}
	f.known[m.id] = m
	at := sort.Search(len(f.places), func(i int) bool { return address(f.places[i].memory) > address(m.memory) })
	f.places = slices.Insert(f.places, at, m)
	f.mu.Unlock()
	return m
}

// Open maps a file, by its name. The caller releases it.
func (f *Files) Open(ctx context.Context, name string) (*Mapped, error) {
	id, err := parseName(name)
	if err != nil {
		return nil, err
	}
	return f.open(ctx, id)
}

func (f *Files) open(ctx context.Context, id fileName) (*Mapped, error) {
	f.mu.Lock()
	if m := f.known[id]; m != nil && !m.conn.ended() && m.take() {
		f.mu.Unlock()
		return m, nil
	}
	f.mu.Unlock()
	ask := nodeapi.OpenFileData{Namespace: f.cfg.Namespace, File: hex.EncodeToString(id[:])}
	a, err := f.ask(ctx, nodeapi.FuncOpenFile, ask)
	if node.CodeOf(err) == nodeapi.CodeUnavailable { // the connection had ended
		a, err = f.ask(ctx, nodeapi.FuncOpenFile, ask)
	}
	if err != nil {
		return nil, err
	}
	m, err := f.adopt(a)
	if err != nil {
		return nil, err
	}
	return f.enter(m), nil
}

// find is in which file bytes are, and where.
func (f *Files) find(b []byte) (*Mapped, int, bool) {
	at := address(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil || f.conn.ended() {
		return nil, 0, false
	}
	i := sort.Search(len(f.places), func(i int) bool { return address(f.places[i].memory) > at }) - 1
	if i < 0 {
		return nil, 0, false
	}
	m := f.places[i]
	from := at - address(m.memory)
	if from+uintptr(len(b)) > uintptr(len(m.memory)) {
		return nil, 0, false
	}
	return m, int(from), true
}

// Draft is a file that is being made: write to Memory, and Seal it, or Discard it.
type Draft struct {
	Memory []byte
	mapped *Mapped
	reader int // a descriptor
}

// Make makes a file to be written to. Its content is shared without a copy.
func (f *Files) Make(ctx context.Context, size int) (*Draft, error) {
	a, err := f.ask(ctx, nodeapi.FuncMakeFile, nodeapi.MakeFileData{Namespace: f.cfg.Namespace, Bytes: int64(size)})
	if err != nil {
		return nil, err
	}
	m := &Mapped{files: f, conn: a.conn, hold: a.id}
	m.refs.Store(1)
	if m.id, err = parseName(a.File); err == nil && len(a.fds) == 2 {
		m.memory, err = mapFile(a.fds[0], int64(size), nil, unix.PROT_READ|unix.PROT_WRITE, 0)
	} else if err == nil {
		err = garbage("%d descriptors came", len(a.fds))
	}
	if err != nil {
		passing.Close(a.fds)
		a.conn.cancel(a.id)
		return nil, err
	}
	passing.Close(a.fds[:1])
	return &Draft{m.memory, m, a.fds[1]}, nil
}

// Name is the file's.
func (d *Draft) Name() string { return d.mapped.Name() }

// Seal ends writing: from now on Memory is read-only, and a program that writes to it crashes.
// Others find the file by the key, if it has one. The caller releases the result.
func (d *Draft) Seal(ctx context.Context, key string) (*Mapped, error) {
	m := d.mapped
	if m == nil {
		return nil, errors.New("the file is sealed, or discarded")
	}
	// If it is mapped for writing it is mapped for reading now: what is made of it stays valid.
	if _, err := mapFile(d.reader, int64(len(m.memory)), unsafe.Pointer(unsafe.SliceData(m.memory)), unix.PROT_READ,
		unix.MAP_FIXED); err != nil {
		return nil, err
	}
	ask := nodeapi.SealFileData{Namespace: m.files.cfg.Namespace, File: m.Name(), Key: key}
	_, _, err := m.conn.ask(ctx, nodeapi.FuncSealFile, ask)
	if err != nil {
		return nil, err
	}
	d.mapped = nil
	passing.Close([]int{d.reader})
	return m.files.enter(m), nil
}

// Discard gives the file up, unless it is sealed. Do not use Memory afterwards.
func (d *Draft) Discard() {
	if m := d.mapped; m != nil {
		d.mapped = nil
		passing.Close([]int{d.reader})
		m.Release()
	}
}

// write encodes a batch as a record, and returns the files that it refers to, each with a
// reference: those that contain its buffers, and a new one for the others, unless they have no more
// bytes than inline.
func (f *Files) write(ctx context.Context, batch arrow.RecordBatch, schema []byte, inline int) (
	record []byte, used []*Mapped, err error) {
	f.sealFor(ctx, batch)
	e, err := encode(batch, schema, f.find)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			letGo(used)
		}
	}()
	for _, m := range e.files {
		m.Retain()
	}
	used = e.files
	if e.space > inline {
		d, err := f.Make(ctx, e.space)
		if err != nil {
			return nil, used, err
		}
		defer d.Discard()
		e.copyFresh(d.Memory)
		m, err := d.Seal(ctx, "")
		if err != nil {
			return nil, used, err
		}
		record = e.head(m)
		used = append(used[:len(used):len(used)], m)
	} else {
		record = e.record()
	}
	f.copied.Add(int64(e.copied))
	f.shared.Add(int64(e.shared))
	return record, used, nil
}

// nowhere finds nothing: all is copied.
func nowhere([]byte) (*Mapped, int, bool) { return nil, 0, false }

func letGo(all []*Mapped) {
	for _, m := range all {
		m.Release()
	}
}

// Decoded returns the batch under a key in the node's cache; if there is none, decode makes it, and
// it is put there. The key says what is decoded, by its content's hash, and how: for example
// "parquet:" and SHA-256. Of several callers at the same time, in any process, only one decodes. If
// there is no room for the batch, only this caller has it. trusted: as in Config. The caller
// releases it.
func (f *Files) Decoded(ctx context.Context, key string, trusted bool,
	decode func(context.Context) (arrow.RecordBatch, error)) (arrow.RecordBatch, error) {
	a, err := f.ask(ctx, nodeapi.FuncOpenFile, nodeapi.OpenFileData{Namespace: f.cfg.Namespace, Key: key})
	if err != nil {
		return nil, err
	}
	if a.File != "" {
		m, err := f.adopt(a)
		if err != nil {
			return nil, err
		}
		return f.unpacked(f.enter(m), trusted)
	}
	passing.Close(a.fds)
	defer a.conn.cancel(a.id) // others wait until then
	batch, err := decode(ctx)
	if err != nil {
		return nil, err
	}
	own := false // the caller has the batch itself
	defer func() {
		if !own {
			batch.Release()
		}
	}()
	schema, err := writeSchema(batch.Schema())
	if err != nil {
		return nil, err
	}
	e, err := encode(batch, schema, nowhere)
	if err != nil {
		return nil, err
	}
	// The file is a record with its buffers; padding in front aligns them.
	head := e.head(nil)
	body := inFront + len(head)
	d, err := f.Make(ctx, body+e.space)
	if node.CodeOf(err) == nodeapi.CodeQuotaExceeded {
		own = true
		return batch, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Discard()
	copy(d.Memory[inFront:], head)
	e.copyFresh(d.Memory[body:])
	m, err := d.Seal(ctx, key)
	if err != nil {
		return nil, err
	}
	f.copied.Add(int64(e.copied))
	return f.unpacked(m, true)
}

// unpacked is the batch that a file of the cache is. It has the file's reference.
func (f *Files) unpacked(m *Mapped, trusted bool) (arrow.RecordBatch, error) {
	defer m.Release()
	if len(m.memory) < inFront {
		return nil, garbage("a file of %d bytes", len(m.memory))
	}
	return decode(m.memory[inFront:], m, func(fileName) (*Mapped, error) {
		return nil, garbage("what was decoded refers to another file")
	}, &f.schemas, trusted)
}
