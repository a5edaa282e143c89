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

// FilesConfig configures Files.
type FilesConfig struct {
	// Socket is the path of the socket of the node's server. If it is empty, nodeapi.FindSocket
	// determines the path.
	Socket string
	// Namespace is the namespace of the files. If it is empty, the program's own namespace is used.
	Namespace string
	// Timeout bounds requests without a context, such as those of an Allocator. 0 means 30 s.
	Timeout time.Duration
}

// Files gives access to files in the memory of a node, over the Unix socket of the node's server. A
// program writes a file once. Then other programs map it, and records refer to it. The node holds
// mapped files until the connection ends. Files are safe for concurrent use.
type Files struct {
	cfg     FilesConfig
	schemas schemas
	copied  atomic.Int64
	shared  atomic.Int64

	connecting sync.Mutex
	mu         sync.Mutex
	conn       *connection
	known      map[fileName]*Mapped
	places     []*Mapped // sorted by address
	allocators map[*Allocator]struct{}
}

// NewFiles returns the files of a node. It connects to the server when a connection is first
// needed.
func NewFiles(cfg FilesConfig) *Files {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Files{cfg: cfg, known: map[fileName]*Mapped{}, allocators: map[*Allocator]struct{}{}}
}

// Copied returns the number of bytes of columns that were copied into new files and records.
func (f *Files) Copied() int64 { return f.copied.Load() }

// Shared returns the number of bytes of columns that were not copied because they were in files.
func (f *Files) Shared() int64 { return f.shared.Load() }

// Close ends the connection. Mapped files stay mapped until they are released, but the node no
// longer holds them.
func (f *Files) Close() {
	f.mu.Lock()
	c := f.conn
	f.leave(nil)
	f.mu.Unlock()
	if c != nil {
		c.end(errors.New("it was closed"))
	}
}

// leave forgets the files that the previous connection held. The caller holds f.mu.
func (f *Files) leave(next *connection) {
	f.conn = next
	clear(f.known)
	f.places = nil
}

// connection returns the current connection, or a new one.
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

// asked is the result of a request that makes the node hold a file. The node holds the file as long
// as the request exists.
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

// Mapped is a file that is mapped for reading. It is reference-counted, like Arrow's objects, and
// each of its buffers holds a reference. The last Release unmaps the file and releases it at the
// node.
type Mapped struct {
	id     fileName
	memory []byte
	refs   atomic.Int64
	files  *Files
	conn   *connection
	hold   uint64 // number of the request that makes the node hold the file
}

// Name returns the file's name.
func (m *Mapped) Name() string { return hex.EncodeToString(m.id[:]) }

// Bytes returns the whole content of the file.
func (m *Mapped) Bytes() []byte { return m.memory }

// Buffer returns the whole content of the file as a buffer for columns. The buffer holds its own
// reference.
func (m *Mapped) Buffer() *memory.Buffer {
	return memoryOf{m.memory, m}.buffer(0, uint64(len(m.memory)))
}

// Retain adds a reference.
func (m *Mapped) Retain() { m.refs.Add(1) }

// take adds a reference. It fails if the last reference was already released.
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

// Release releases a reference.
func (m *Mapped) Release() {
	if m.refs.Add(-1) != 0 {
		return
	}
	f := m.files
	f.mu.Lock()
	if f.known[m.id] == m {
		delete(f.known, m.id)
	}
	// Remove the file before it is unmapped, because later something else may be mapped at this
	// address.
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

// adopt maps the file of a request's result. The last file descriptor is for reading. If adopt
// fails, it releases the file.
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

// enter registers a file by its name and its address. If the file is already registered, enter
// returns the registered one, and releases m.
func (f *Files) enter(m *Mapped) *Mapped {
	f.mu.Lock()
	if m.conn != f.conn { // the node no longer holds this file, and would refuse references to it
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

// Open maps a file by its name. The caller releases it.
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
	if node.CodeOf(err) == nodeapi.CodeUnavailable {
		// the connection has ended, so try again with a new connection
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

// find returns the file that contains b, and the offset of b in it.
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

// Draft is a file that is being written. The program writes to Memory, and then calls Seal or
// Discard.
type Draft struct {
	Memory []byte
	mapped *Mapped
	reader int // a file descriptor for reading
}

// Make creates a file to write to. Its content is shared without a copy.
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

// Name returns the file's name.
func (d *Draft) Name() string { return d.mapped.Name() }

// Seal ends the writing. From then on, Memory is read-only, and a program that writes to it
// crashes. If key is not "", other programs can find the file by this key. The caller releases the
// result.
func (d *Draft) Seal(ctx context.Context, key string) (*Mapped, error) {
	m := d.mapped
	if m == nil {
		return nil, errors.New("the file is sealed, or discarded")
	}
	// This replaces the writable mapping with a read-only mapping at the same address, so that
	// existing arrays stay valid.
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

// Discard deletes the file, unless it is sealed. Do not use Memory afterwards.
func (d *Draft) Discard() {
	if m := d.mapped; m != nil {
		d.mapped = nil
		passing.Close([]int{d.reader})
		m.Release()
	}
}

// write encodes a batch as a record. It also returns the files to which the record refers, with a
// reference to each. These are the files that contain buffers of the batch. If the other buffers
// have more bytes than inline, write puts them into a new file.
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

// nowhere finds no file for any bytes, so that everything is copied.
func nowhere([]byte) (*Mapped, int, bool) { return nil, 0, false }

func letGo(all []*Mapped) {
	for _, m := range all {
		m.Release()
	}
}

// Decoded returns the batch under a key in the node's cache. If there is none, it calls decode and
// puts the result into the cache. The key must identify the source, by a hash of its content, and
// the way of decoding. An example is "parquet:" and a SHA-256. If several callers, in any
// processes, want the same batch at the same time, only one of them decodes it. If the cache has no
// room for the batch, only this caller gets the batch. trusted has the same meaning as in Config.
// The caller releases the batch.
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
	defer a.conn.cancel(a.id) // until this request ends, concurrent callers with the same key wait
	batch, err := decode(ctx)
	if err != nil {
		return nil, err
	}
	own := false // whether the caller gets the batch directly and not from the cache
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
	// The file contains a record with its buffers. Padding before the record aligns the buffers.
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

// unpacked returns the batch that a file of the cache contains. The batch takes over the reference
// to the file.
func (f *Files) unpacked(m *Mapped, trusted bool) (arrow.RecordBatch, error) {
	defer m.Release()
	if len(m.memory) < inFront {
		return nil, garbage("a file of %d bytes", len(m.memory))
	}
	return decode(m.memory[inFront:], m, func(fileName) (*Mapped, error) {
		return nil, garbage("what was decoded refers to another file")
	}, &f.schemas, trusted)
}
