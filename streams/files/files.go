// Package files manages a node's files in memory. A program writes a file once, others map it, and
// records of streams refer to it. docs/streams-arrow.md is its specification.
//
// A file is a memfd that the server creates, and passes to its maker for writing. After the maker
// has sealed it no one can write to it, not even the maker. So a program that maps the file can
// rely on what it has checked. A file exists as long as someone holds it or a record refers to it.
// If it has a key, it exists further until its memory is needed.
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

// Limits bound files. 0 means the default at the end of the comment.
type Limits struct {
	Each int // files per namespace. 1,024
	All  int // files of all namespaces. 8,192
}

// Manager keeps files. It is safe for concurrent use.
type Manager struct {
	limits Limits
	take   func(namespace string, bytes int64) error
	retire func(namespace string, bytes int64, r *segment.Remains)

	hits, misses, evicted atomic.Uint64

	mu     sync.Mutex
	files  map[id]*File
	each   map[string]int
	bytes  int64
	keys   map[id]*list.Element // by key: elements of idle, whether the file is in use or not
	claims map[id]chan struct{} // closed when the maker of the file with the key has finished, or given up
	freed  chan struct{}        // closed when a record that referred to a rewritable file is gone
	idle   *list.List           // elements are *File with a key, the most recently used first
}

// id is a file's name in its namespace, or its key.
type id struct{ namespace, name string }

// File is a file in memory.
type File struct {
	Name  string // 32 hexadecimal digits
	Bytes int64
	// Rewritable reports whether a program that mapped the file for writing before it was sealed
	// can still write to it.
	Rewritable bool

	m      *Manager
	in     string // its namespace
	key    string
	memory *segment.Sealable
	sealed bool
	users  int // number of holds, and of records that refer to it
	of     int // number of records that refer to it
}

// New makes a manager. take allocates memory of a namespace for a file. retire returns the memory
// when no caller keeps the remains of the file. Both are called with a lock held, and must not call
// this package.
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

// Make makes a file that its caller holds and can write to. If there is no memory for it, unused
// files are evicted. rewritable: mappings from before the file is sealed stay writable.
func (m *Manager) Make(namespace string, bytes int64, rewritable bool) (*File, error) {
	if bytes < 1 || bytes > nodeapi.MaxFileBytes {
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "a file of %d bytes; it has 1 to %d", bytes, nodeapi.MaxFileBytes)
	}
	f, err := m.reserve(namespace, bytes)
	if err != nil {
		return nil, err
	}
	// The lock is not held here, because allocating the memory of a large file takes a while.
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

// reserve makes a file that has no memory yet, and that no one can find.
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
		// Evict files of its own namespace first, and others only if the server has no memory left.
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

// ErrServerFull is in take's error if the server has no memory left, rather than the namespace.
var ErrServerFull = errors.New("the server has no more memory for streams")

// evict deletes the least recently used one of the unused files of a namespace or, with "", of all
// namespaces. m.mu is held.
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

// Evict deletes an unused file of a namespace or, with "", of any namespace, to free its memory.
func (m *Manager) Evict(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evict(namespace)
}

// forget removes a file's key. m.mu is held.
func (m *Manager) forget(f *File) {
	if e := m.keys[id{f.in, f.key}]; f.key != "" && e != nil {
		m.idle.Remove(e)
		delete(m.keys, id{f.in, f.key})
	}
	f.key = ""
}

// drop deletes an unused file without a key. m.mu is held.
func (m *Manager) drop(f *File) {
	delete(m.files, id{f.in, f.Name})
	if m.each[f.in]--; m.each[f.in] == 0 {
		delete(m.each, f.in)
	}
	m.bytes -= f.Bytes
	var remains *segment.Remains
	if f.memory != nil { // nil: allocation failed
		remains = f.memory.Retire()
	}
	m.retire(f.in, f.Bytes, remains)
}

// Release releases a file.
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

// ReleaseRecord releases a file from HoldAll, because the record that referred to it is gone.
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

// Free returns the named rewritable files to which no record refers. It waits until there is one,
// at most for the given time.
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

// Draft returns descriptors for the file's maker: one for writing, and Reader's. The caller closes
// them.
func (f *File) Draft() ([]*os.File, error) {
	f.m.mu.Lock() // it may be sealed concurrently
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

// Seal ends writing to a file. The maker must have unmapped it or, if it is rewritable, must have
// mapped it. From then on no one else can write to it. With a key, the file can be found by it,
// unless another file has the key.
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

// hold is Hold with m.mu held.
func (m *Manager) hold(namespace, name string) (*File, error) {
	f := m.files[id{namespace, name}]
	if f == nil || !f.sealed {
		return nil, noFile(name)
	}
	f.users++
	return f, nil
}

// Open holds either all of several files, or none.
func (m *Manager) Open(namespace string, names []string) ([]*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(namespace, names)
}

// open is Open with m.mu held.
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

// HoldAll is like Open, for a record that refers to the files. ReleaseRecord releases them.
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
// must make the file. Others wait until it has done so or has given up; then the next one must make
// it.
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

// Count returns the number of files, their bytes, the numbers of requested keys that were found and
// not found, and the number of evicted files.
func (m *Manager) Count() (files int, bytes int64, hits, misses, evicted uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.files), m.bytes, m.hits.Load(), m.misses.Load(), m.evicted.Load()
}

// Close deletes unused files. Mappings of other programs stay valid.
func (m *Manager) Close() {
	for m.Evict("") {
	}
}
