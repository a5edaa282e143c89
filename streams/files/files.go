// Package files manages a node's files in memory. One program writes a file once, other programs
// map it, and records of streams refer to it. docs/streams-arrow.md is its specification.
//
// A file is a memfd. The server creates it, and passes it to the program that writes it, which is
// called its maker. After the maker has sealed the file, no program can write to it, not even the
// maker. So when a program has checked the content of a mapped file, the content cannot change
// later. A file exists as long as a program holds it or a record refers to it. A file with a key
// exists longer, until its memory is needed.
package files

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/streams/segment"
)

// Limits are the limits for files. A field that is 0 means the default, which is the number at the
// end of the field's comment.
type Limits struct {
	Each int // maximum number of files per namespace. 1,024
	All  int // maximum number of files of all namespaces. 8,192
}

// Manager manages the files of a node. It is safe for concurrent use.
type Manager struct {
	limits Limits
	take   func(namespace string, bytes int64) error
	retire func(namespace string, bytes int64, r *segment.Remains)

	hits, misses, evicted atomic.Uint64

	mu     sync.Mutex
	files  map[id]*File
	each   map[string]int
	bytes  int64
	keys   map[id]*list.Element // the element of the list idle for each key, whether or not the file is in use
	claims map[id]chan struct{} // by key of a file that is being made; closed when its maker has finished or given up
	freed  chan struct{}        // closed when the last record that referred to a rewritable file is gone
	idle   *list.List           // the files with a key (*File), the most recently used first
}

// id is a file's name or key, together with its namespace.
type id struct{ namespace, name string }

// File is a file in memory.
type File struct {
	Name  string // the file's name: 32 hexadecimal digits
	Bytes int64
	// Rewritable reports whether a program that mapped the file for writing before it was sealed
	// can still write to it.
	Rewritable bool

	m      *Manager
	in     string // the file's namespace
	key    string
	memory *segment.Sealable
	sealed bool
	users  int // number of programs that hold the file plus number of records that refer to it
	of     int // number of records that refer to the file
}

// New makes a manager. take reserves memory of a namespace for a file. retire returns the memory
// when no caller uses the remains of the file any longer. The manager calls both functions while it
// holds a lock, so they must not call this package.
func New(l Limits, take func(namespace string, bytes int64) error,
	retire func(namespace string, bytes int64, r *segment.Remains)) *Manager {
	if l.Each == 0 {
		l.Each = 1024
	}
	if l.All == 0 {
		l.All = 8192
	}
	return &Manager{limits: l, take: take, retire: retire, files: map[id]*File{}, each: map[string]int{},
		keys: map[id]*list.Element{}, claims: map[id]chan struct{}{}, freed: make(chan struct{}), idle: list.New()}
}

func noFile(name string) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "it may have been given back: read on", "there is no file %.40q", name)
}

func quota(do, format string, args ...any) error {
	return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, do, format, args...)
}

// Make makes a file that its caller holds and can write to. If there is no memory for the file,
// Make evicts unused files. If `rewritable` is true, mappings from before the file is sealed stay
// writable.
func (m *Manager) Make(namespace string, bytes int64, rewritable bool) (*File, error) {
	if bytes < 1 || bytes > nodeapi.MaxFileBytes {
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "a file of %d bytes; it has 1 to %d", bytes, nodeapi.MaxFileBytes)
	}
	f, err := m.reserve(namespace, bytes)
	if err != nil {
		return nil, err
	}
	// The lock is not held here, because it takes a while to allocate the memory of a large file.
	memory, err := segment.NewSealable("netcraq-file", int(bytes))
	m.mu.Lock()
	defer m.mu.Unlock()
	f.Rewritable = rewritable
	if f.memory = memory; err != nil {
		m.drop(f)
		return nil, nodeapi.Errorf(nodeapi.CodeInternal, "look whether the node has memory", "making a file: %v", err)
	}
	return f, nil
}

// reserve makes a file that has no memory yet, and that no program can find.
func (m *Manager) reserve(namespace string, bytes int64) (*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.each[namespace] >= m.limits.Each && !m.evict(namespace):
		return nil, quota("let go of files", "namespace %s has its %d files", namespace, m.limits.Each)
	case len(m.files) >= m.limits.All && !m.evict(""):
		return nil, quota("try again later", "the server has its %d files", m.limits.All)
	}
	for {
		err := m.take(namespace, bytes)
		if err == nil {
			break
		}
		// Evict files of the same namespace first, and files of other namespaces only if the server
		// has no memory left.
		if !m.evict(namespace) && (!errors.Is(err, ErrServerFull) || !m.evict("")) {
			return nil, err
		}
	}
	var name [16]byte
	_, _ = rand.Read(name[:])
	f := &File{Name: hex.EncodeToString(name[:]), Bytes: bytes, m: m, in: namespace, users: 1}
	m.files[id{namespace, f.Name}] = f
	m.each[namespace]++
	m.bytes += bytes
	return f, nil
}

// ErrServerFull is the error of take if the whole server has no memory left. If only the namespace
// has no memory left, take returns another error.
var ErrServerFull = errors.New("the server has no more memory for streams")

// evict deletes the least recently used file that is not in use. An empty namespace means that the
// file may be in any namespace. The caller holds m.mu.
func (m *Manager) evict(namespace string) bool {
	for e := m.idle.Back(); e != nil; e = e.Prev() {
		if f := e.Value.(*File); f.users == 0 && (namespace == "" || f.in == namespace) {
			m.evicted.Add(1)
			m.forget(f)
			m.drop(f)
			return true
		}
	}
	return false
}

// Evict deletes an unused file of a namespace to free its memory. An empty namespace means any
// namespace.
func (m *Manager) Evict(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evict(namespace)
}

// forget removes the key of a file. The caller holds m.mu.
func (m *Manager) forget(f *File) {
	if e := m.keys[id{f.in, f.key}]; f.key != "" && e != nil {
		m.idle.Remove(e)
		delete(m.keys, id{f.in, f.key})
	}
	f.key = ""
}

// drop deletes an unused file without a key. The caller holds m.mu.
func (m *Manager) drop(f *File) {
	delete(m.files, id{f.in, f.Name})
	if m.each[f.in]--; m.each[f.in] == 0 {
		delete(m.each, f.in)
	}
	m.bytes -= f.Bytes
	var remains *segment.Remains
	if f.memory != nil { // memory is nil if its allocation failed
		remains = f.memory.Retire()
	}
	m.retire(f.in, f.Bytes, remains)
}

// Release ends one hold of a file.
func (f *File) Release() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.release()
}

func (f *File) release() {
	if f.users--; f.users == 0 && f.key == "" {
		f.m.drop(f)
	}
}

// ReleaseRecord releases a file that HoldAll has held for a record, because the record no longer
// exists.
func (f *File) ReleaseRecord() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.releaseRecord()
}

func (f *File) releaseRecord() {
	if f.of--; f.of == 0 && f.Rewritable {
		close(f.m.freed)
		f.m.freed = make(chan struct{})
	}
	f.release()
}

// Free returns those of the named rewritable files to which no record refers. It waits until there
// is at least one, for at most the given time.
func (m *Manager) Free(ctx context.Context, namespace string, names []string, most time.Duration) (free []string,
	err error) {
	wait, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		m.mu.Lock()
		for _, name := range names {
			f := m.files[id{namespace, name}]
			if f == nil || !f.sealed || !f.Rewritable {
				m.mu.Unlock()
				return nil, noFile(name)
			}
			if f.of == 0 {
				free = append(free, name)
			}
		}
		freed := m.freed
		m.mu.Unlock()
		if len(free) > 0 {
			return free, nil
		}
		select {
		case <-freed:
		case <-wait.Done():
			return nil, ctx.Err()
		}
	}
}

// Draft returns two descriptors for the file's maker. The first is for writing, and the second is
// the descriptor that Reader returns. The caller closes them.
func (f *File) Draft() ([]*os.File, error) {
	f.m.mu.Lock() // another goroutine may seal the file at the same time
	w, err := f.memory.Writer()
	f.m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r, err := f.Reader()
	if err != nil {
		w.Close()
		return nil, err
	}
	return []*os.File{w, r[0]}, nil
}

// Reader returns a descriptor for programs that map the file. The caller closes it.
func (f *File) Reader() ([]*os.File, error) {
	r, err := f.memory.Pass()
	if err != nil {
		return nil, err
	}
	return []*os.File{r}, nil
}

// Seal ends writing to a file. The maker must have unmapped an ordinary file, and must have mapped
// a rewritable file. After Seal no other program can begin to write to the file. If key is set, the
// file can be found by this key, unless another file already has it.
func (m *Manager) Seal(namespace, name, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[id{namespace, name}]
	if f == nil {
		return noFile(name)
	}
	if f.sealed {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "the file is sealed already")
	}
	seal := f.memory.Seal
	if f.Rewritable {
		if key != "" {
			return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "a rewritable file has no key: what it has does not stay")
		}
		seal = f.memory.SealFuture
	}
	if err := seal(); errors.Is(err, unix.EBUSY) {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "unmap it first", "somebody has the file mapped for writing")
	} else if err != nil {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "make another one", "the file cannot be sealed: %v", err)
	}
	f.sealed = true
	at := id{namespace, key}
	if key != "" && m.keys[at] == nil {
		f.key = key
		m.keys[at] = m.idle.PushFront(f)
		if c := m.claims[at]; c != nil {
			delete(m.claims, at)
			close(c)
		}
	}
	return nil
}

// Hold finds a sealed file by its name, and holds it.
func (m *Manager) Hold(namespace, name string) (*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hold(namespace, name)
}

// hold does what Hold does. The caller holds m.mu.
func (m *Manager) hold(namespace, name string) (*File, error) {
	f := m.files[id{namespace, name}]
	if f == nil || !f.sealed {
		return nil, noFile(name)
	}
	f.users++
	return f, nil
}

// Open holds several sealed files. It holds either all of them, or none.
func (m *Manager) Open(namespace string, names []string) ([]*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(namespace, names)
}

// open does what Open does. The caller holds m.mu.
func (m *Manager) open(namespace string, names []string) ([]*File, error) {
	out := make([]*File, 0, len(names))
	for _, name := range names {
		f, err := m.hold(namespace, name)
		if err != nil {
			for _, f := range out {
				f.release()
			}
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// HoldAll is like Open, but holds the files for a record that refers to them. ReleaseRecord
// releases them.
func (m *Manager) HoldAll(namespace string, names []string) ([]*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, err := m.open(namespace, names)
	for _, f := range out {
		f.of++
	}
	return out, err
}

// Find finds a file by its key, and holds it. If no file has the key, the first caller gets nil and
// must make the file. Other callers wait until the first caller has made the file or has given up.
// If it gives up, the next caller must make the file.
func (m *Manager) Find(ctx context.Context, namespace, key string) (f *File, giveUp func(), err error) {
	at := id{namespace, key}
	for {
		m.mu.Lock()
		if e := m.keys[at]; e != nil {
			f := e.Value.(*File)
			f.users++
			m.idle.MoveToFront(e)
			m.mu.Unlock()
			m.hits.Add(1)
			return f, nil, nil
		}
		claim := m.claims[at]
		if claim == nil {
			claim = make(chan struct{})
			m.claims[at] = claim
			m.mu.Unlock()
			m.misses.Add(1)
			return nil, func() { m.giveUp(at, claim) }, nil
		}
		m.mu.Unlock()
		select {
		case <-claim:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (m *Manager) giveUp(at id, claim chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[at] == claim {
		delete(m.claims, at)
		close(claim)
	}
}

// Count returns the number of files and their size in bytes. It also returns how many requested
// keys were found and not found, and how many files were evicted.
func (m *Manager) Count() (files int, bytes int64, hits, misses, evicted uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.files), m.bytes, m.hits.Load(), m.misses.Load(), m.evicted.Load()
}

// Close deletes unused files. Programs that have mapped a file can still use it.
func (m *Manager) Close() {
	for m.Evict("") {
	}
}
