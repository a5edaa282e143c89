// Package broker manages a node's streams: their memory, their producers and consumers.
// docs/streams.md is its specification. streams/ledger makes the decisions, and this package
// executes them.
//
// Non-volatile streams survive the process. Consumers map memfds, and only the process that made a
// memfd can write to it. So the broker also keeps the ring of each non-volatile partition in an
// ordinary file, in a folder that should be in tmpfs. It writes each record to this file first. A
// broker that replaces a killed one makes new memfds with the content of these files.
package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/atomicfile"
	"github.com/netcraq/netcraq/internal/shares"
	"github.com/netcraq/netcraq/streams/files"
	"github.com/netcraq/netcraq/streams/ledger"
	"github.com/netcraq/netcraq/streams/segment"
	"github.com/netcraq/netcraq/streams/source"
)

// Options are the options of a Broker.
type Options struct {
	// Dir is the folder for non-volatile streams. Only this user may have access to it. If Dir is
	// empty, all streams are volatile. If another broker uses the folder, this broker waits until
	// it has ended.
	Dir    string
	Limits Limits
	Log    *slog.Logger // the broker's log; nil means no log
	// Metrics is the registry for the broker's counters. It may be nil.
	Metrics prometheus.Registerer
	// Sources makes the sources of streams. If it is nil, no stream can have a source.
	Sources source.Maker
}

// Broker manages the streams of a node. It is safe for concurrent use.
type Broker struct {
	o      Options
	limits Limits
	log    *slog.Logger
	ready  chan struct{} // closed when this broker has restored the streams in Dir, or was drained before it could
	lock   *os.File
	stop   context.CancelFunc
	done   sync.WaitGroup
	saving sync.Mutex // held while the broker writes to the folders of streams
	drain  sync.Once

	counters counters

	mu      sync.Mutex
	failed  error // why the broker could not restore its streams; all calls return this error
	streams map[name]*Stream
	// streams that could not be restored; an entry is removed when the stream is created again
	damaged   map[name]bool
	bytes     map[string]int64 // memory of streams and files in bytes, by namespace
	all       int64
	consumers map[string]int
	positions *shares.Budget // divides Limits.Positions among namespaces
	sleepers  *shares.Budget // divides the threads that may sleep at futexes among namespaces
	next      ledger.ID
	files     *files.Manager
	kept      map[string][]*kept // released memory that callers still have open, by namespace
	drained   bool               // after Drain; the broker no longer updates the field kept
	reaping   sync.Mutex         // guards the field kept; locked before mu
}

type name struct{ namespace, stream string }

const saveEvery = 500 * time.Millisecond

// New makes a broker. In the background, it restores the streams in Dir as soon as no other broker
// uses that folder.
func New(o Options) *Broker {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Broker{o: o, limits: o.Limits.withDefaults(), log: o.Log, ready: make(chan struct{}), stop: stop,
		streams: map[name]*Stream{}, damaged: map[name]bool{}, bytes: map[string]int64{}, consumers: map[string]int{},
		kept: map[string][]*kept{}, sleepers: shares.New(maxSleepers)}
	b.positions = shares.New(b.limits.Positions)
	b.files = files.New(b.limits.Files, b.take, func(namespace string, bytes int64, r *segment.Remains) {
		b.retire(namespace, pages(bytes), r)
	})
	if o.Metrics != nil {
		o.Metrics.MustRegister(collector{b})
	}
	b.done.Go(func() {
		if err := b.begin(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("there are no streams", "dir", o.Dir, "error", err)
			b.mu.Lock()
			b.failed = nodeapi.Errorf(nodeapi.CodeUnavailable, "look into the server's log", "the server keeps no streams: %v", err)
			b.mu.Unlock()
		}
		close(b.ready)
		tick, reap := time.NewTicker(saveEvery), time.NewTicker(reapEvery)
		defer tick.Stop()
		defer reap.Stop()
		for {
			select {
			case <-tick.C:
				b.save()
			case <-reap.C:
				b.reapAll()
			case <-ctx.Done():
				return
			}
		}
	})
	return b
}

func now() int64 { return time.Now().UnixNano() }

// begin waits until no other broker uses Dir, and restores the streams there.
func (b *Broker) begin(ctx context.Context) error {
	if b.o.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(b.o.Dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(b.o.Dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: others than its owner may enter it (%v)", b.o.Dir, info.Mode().Perm())
	}
	if b.lock, err = os.OpenFile(filepath.Join(b.o.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	for {
		err := unix.Flock(int(b.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return b.takeUp()
}

// streamFile is the content of the file that describes a stream, in the stream's folder.
type streamFile struct {
	Incarnation string               `json:"incarnation"`
	Config      nodeapi.StreamConfig `json:"config"`
}

const (
	configName    = "stream.json"
	positionsName = "positions.json"
	discarded     = ".deleted-" // prefix of the folder names of streams that are being deleted
)

func ringName(n int) string { return strconv.Itoa(n) + ".ring" }

// takeUp restores the streams in Dir. If a stream cannot be read, takeUp logs this and leaves its
// files unchanged.
func (b *Broker) takeUp() error {
	namespaces, err := os.ReadDir(b.o.Dir)
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		if !ns.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(b.o.Dir, ns.Name()))
		if err != nil {
			return err
		}
		for _, n := range names {
			dir := filepath.Join(b.o.Dir, ns.Name(), n.Name())
			err := fs.ErrNotExist
			if !strings.HasPrefix(n.Name(), discarded) {
				err = b.takeUpOne(ns.Name(), n.Name(), dir)
			}
			if errors.Is(err, fs.ErrNotExist) {
				// The folder is incomplete, because a broker died while it created or deleted the
				// stream.
				err = os.RemoveAll(dir)
				b.log.Info("what was left of a stream is removed", "dir", dir, "error", err)
			} else if err != nil {
				b.log.Error("a stream is not taken up", "dir", dir, "error", err)
				b.mu.Lock()
				b.damaged[name{ns.Name(), n.Name()}] = true
				b.mu.Unlock()
			}
		}
	}
	return nil
}

func (b *Broker) takeUpOne(namespace, stream, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil {
		return err
	}
	var f streamFile
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Config, err = complete(f.Config); err != nil {
		return err
	}
	s := &Stream{Namespace: namespace, Name: stream, Incarnation: f.Incarnation, Config: f.Config, b: b, dir: dir}
	if err := removeHalves(dir); err != nil {
		return err
	}
	if err := b.build(s, true); errors.Is(err, fs.ErrNotExist) {
		// %v hides fs.ErrNotExist, which the caller would take for an incomplete stream
		return fmt.Errorf("a file of the stream is missing: %v", err)
	} else if err != nil {
		return err
	}
	var positions []map[string]uint64
	if text, err := os.ReadFile(filepath.Join(dir, positionsName)); err == nil {
		err = json.Unmarshal(text, &positions)
		if err != nil || len(positions) != len(s.partitions) {
			b.log.Error("the positions of a stream's consumers are lost", "dir", dir, "error", err)
			positions = nil
		}
	}
	for i, of := range positions {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			s.partitions[i].ring.Remember(name, of[name], now())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(s)
	return nil
}

// removeHalves removes temporary files that durable.Replace has left in a stream's folder, because
// the broker was killed.
func removeHalves(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), ".") {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// build makes the partitions of a stream. If `there` is true, it restores them from their files.
func (b *Broker) build(s *Stream, there bool) error {
	for n := range s.Config.Partitions {
		path := ""
		if s.dir != "" {
			path = filepath.Join(s.dir, ringName(n))
		}
		p, err := newPartition(n, s.Config, b.limits, path, there, now, &b.counters)
		if err != nil {
			for _, p := range s.partitions {
				p.free().Close()
			}
			return err
		}
		s.partitions = append(s.partitions, p)
	}
	return nil
}

// enter adds a stream to the broker's streams, and starts its source. The caller holds b.mu.
func (b *Broker) enter(s *Stream) {
	b.streams[name{s.Namespace, s.Name}] = s
	b.count(s.Namespace, bytesOf(s.Config))
	if s.Config.Source == nil {
		return
	}
	if from, err := b.source(s.Namespace, s.Config.Source); err != nil {
		b.log.Error("a stream's source is not run", "namespace", s.Namespace, "stream", s.Name, "error", err)
	} else {
		s.fill(from)
	}
}

// wait waits until the broker has restored its streams.
func (b *Broker) wait(ctx context.Context) error {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nodeapi.Errorf(nodeapi.CodeUnavailable, "try again", "another server has the streams at this moment")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// Open finds a stream. If it does not exist, Open creates it, provided that c is not nil and
// mayMake returns no error.
func (b *Broker) Open(ctx context.Context, namespace, stream string, c *nodeapi.StreamConfig, mayMake error) (_ *Stream,
	made bool, err error) {
	if err := b.wait(ctx); err != nil {
		return nil, false, err
	}
	if !streamName.MatchString(stream) {
		return nil, false, invalid("%.80q is no name of a stream: it has 1 to 63 letters a-z, digits and -", stream)
	}
	if c != nil {
		full, err := complete(*c)
		if err != nil {
			return nil, false, err
		}
		full.Volatile = full.Volatile || b.o.Dir == ""
		c = &full
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if s := b.streams[name{namespace, stream}]; s != nil {
			if c != nil && !same(*c, s.Config) {
				return nil, false, invalid("the stream %q is there, with another configuration", stream)
			}
			return s, false, nil
		}
		switch {
		case b.failed != nil:
			return nil, false, b.failed
		case c == nil && b.damaged[name{namespace, stream}]:
			return nil, false, errDamaged(stream)
		case c == nil:
			return nil, false, noStream(stream)
		case mayMake != nil:
			return nil, false, mayMake
		}
		err := b.roomFor(namespace, *c)
		if err == nil {
			break
		}
		// Free memory by evicting unused files. While b.mu is unlocked, another caller may create
		// the stream.
		b.mu.Unlock()
		evicted := b.reap(namespace) || b.files.Evict(namespace) ||
			errors.Is(err, files.ErrServerFull) && b.files.Evict("")
		b.mu.Lock()
		if !evicted && b.streams[name{namespace, stream}] == nil {
			return nil, false, err
		}
	}
	if c.Source != nil {
		if _, err := b.source(namespace, c.Source); err != nil {
			return nil, false, err
		}
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	s := &Stream{Namespace: namespace, Name: stream, Incarnation: hex.EncodeToString(id[:]), Config: *c, b: b}
	if !c.Volatile {
		s.dir = filepath.Join(b.o.Dir, namespace, stream)
	}
	if err := b.make(s); err != nil {
		if s.dir != "" {
			_ = os.RemoveAll(s.dir)
		}
		return nil, false, nodeapi.Errorf(nodeapi.CodeInternal, "look whether the node has memory and room for files",
			"making the stream: %v", err)
	}
	b.enter(s)
	if b.damaged[name{namespace, stream}] {
		delete(b.damaged, name{namespace, stream})
		b.log.Warn("a stream that was damaged is made anew, with another incarnation", "namespace", namespace, "stream",
			stream, "incarnation", s.Incarnation)
	}
	return s, true, nil
}

// same reports whether two configurations are equal.
func same(a, b nodeapi.StreamConfig) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// roomFor returns an error if the namespace may not have another stream with configuration c. The
// caller holds b.mu.
func (b *Broker) roomFor(namespace string, c nodeapi.StreamConfig) error {
	streams := 0
	for n := range b.streams {
		if n.namespace == namespace {
			streams++
		}
	}
	size := bytesOf(c)
	switch {
	case streams >= b.limits.Streams:
		return quota("delete streams that are not used", "namespace %s has its %d streams", namespace, b.limits.Streams)
	}
	return b.roomForBytes(namespace, size)
}

// roomForBytes returns an error if the namespace may not have size more bytes of memory. The caller
// holds b.mu.
func (b *Broker) roomForBytes(namespace string, size int64) error {
	switch {
	case len(b.kept[namespace]) >= b.limits.Kept:
		return errKept(namespace, b.limits.Kept)
	case b.bytes[namespace]+size > b.limits.Bytes:
		return quota("ask for less, delete streams, or let go of files", "it takes %d bytes; namespace %s has %d of %d",
			size, namespace, b.bytes[namespace], b.limits.Bytes)
	case b.all+size > b.limits.AllBytes:
		return errors.Join(quota("ask for less", "it takes %d bytes; the server has %d of %d", size, b.all,
			b.limits.AllBytes), files.ErrServerFull)
	}
	return nil
}

// take reserves memory for the files of a namespace.
func (b *Broker) take(namespace string, size int64) error {
	size = pages(size)
	for {
		b.mu.Lock()
		err := b.roomForBytes(namespace, size)
		if err == nil {
			b.count(namespace, size)
		}
		b.mu.Unlock()
		if err == nil || !b.reap(namespace) {
			return err
		}
	}
}

// pages returns the memory that a file of the given size occupies, which is a whole number of
// pages.
func pages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// count adds size bytes to the memory that a namespace uses. The caller holds b.mu.
func (b *Broker) count(namespace string, size int64) {
	if b.bytes[namespace] += size; b.bytes[namespace] == 0 {
		delete(b.bytes, namespace)
	}
	b.all += size
}

// countMore is like count, for callers that do not hold b.mu.
func (b *Broker) countMore(namespace string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(namespace, size)
}

// Files returns the manager of the files to which records may refer.
func (b *Broker) Files() *files.Manager { return b.files }

// make makes a stream's folder and partitions. It writes the configuration file last, because a
// folder without that file does not count as a stream.
func (b *Broker) make(s *Stream) error {
	if s.dir != "" {
		if err := errors.Join(os.RemoveAll(s.dir), os.MkdirAll(s.dir, 0o700)); err != nil {
			return err
		}
	}
	if err := b.build(s, false); err != nil || s.dir == "" {
		return err
	}
	return writeJSON(filepath.Join(s.dir, configName), streamFile{s.Incarnation, s.Config})
}

func writeJSON(path string, v any) error {
	return atomicfile.Replace(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// Find finds an existing stream.
func (b *Broker) Find(ctx context.Context, namespace, stream string) (*Stream, error) {
	s, _, err := b.Open(ctx, namespace, stream, nil, nil)
	return s, err
}

// List returns the names of a namespace's streams, sorted.
func (b *Broker) List(ctx context.Context, namespace string) ([]string, error) {
	if err := b.wait(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []string{}
	for n := range b.streams {
		if n.namespace == namespace {
			out = append(out, n.stream)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Delete deletes a stream, and releases its memory.
func (b *Broker) Delete(ctx context.Context, namespace, stream string) error {
	s, err := b.Find(ctx, namespace, stream)
	if err != nil {
		return err
	}
	b.mu.Lock()
	if b.streams[name{namespace, stream}] != s {
		b.mu.Unlock()
		return noStream(stream)
	}
	gone, err := b.discard(s)
	if err != nil {
		b.mu.Unlock()
		return nodeapi.Errorf(nodeapi.CodeInternal, "", "deleting the stream: %v", err)
	}
	delete(b.streams, name{namespace, stream})
	b.mu.Unlock()
	defer b.countMore(namespace, -logBytes(s.Config))
	s.end(noStream(stream))
	if gone == "" {
		return nil
	}
	return os.RemoveAll(gone)
}

// discard renames a stream's folder to a name that no stream can have, and returns the new name.
// The caller holds b.mu, so that the next stream with the same name gets its own folder.
func (b *Broker) discard(s *Stream) (string, error) {
	if s.dir == "" {
		return "", nil
	}
	b.saving.Lock()
	defer b.saving.Unlock()
	gone := filepath.Join(filepath.Dir(s.dir), discarded+s.Incarnation)
	s.dropped = true
	return gone, os.Rename(s.dir, gone)
}

// admit counts a new consumer of a stream, and returns its id. It returns an error if the namespace
// has too many consumers.
func (b *Broker) admit(s *Stream, partitions int) (ledger.ID, error) {
	b.mu.Lock()
	if len(b.kept[s.Namespace]) >= b.limits.Kept {
		b.mu.Unlock()
		b.reap(s.Namespace)
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	switch {
	case len(b.kept[s.Namespace]) >= b.limits.Kept:
		return 0, errKept(s.Namespace, b.limits.Kept)
	case b.consumers[s.Namespace] >= b.limits.Consumers:
		return 0, quota("cancel subscriptions that are not used", "namespace %s has its %d subscriptions", s.Namespace,
			b.limits.Consumers)
	case !b.positions.Take(s.Namespace, partitions):
		return 0, quota("cancel subscriptions that are not used, or subscribe to fewer partitions",
			"of the server's %d positions of subscriptions namespace %s may have no more than it leaves for others",
			b.limits.Positions, s.Namespace)
	}
	b.consumers[s.Namespace]++
	b.count(s.Namespace, stream.CursorBytes)
	b.next++
	return b.next, nil
}

// dismiss stops counting a consumer that admit has counted.
func (b *Broker) dismiss(s *Stream, partitions int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.positions.Give(s.Namespace, partitions)
	if b.consumers[s.Namespace]--; b.consumers[s.Namespace] == 0 {
		delete(b.consumers, s.Namespace)
	}
}

// save stores the positions of all named consumers.
func (b *Broker) save() {
	b.mu.Lock()
	streams := slices.Collect(maps.Values(b.streams))
	b.mu.Unlock()
	for _, s := range streams {
		if err := s.save(); err != nil {
			b.log.Warn("where consumers are is not saved", "namespace", s.Namespace, "stream", s.Name, "error", err)
		}
	}
}

// save stores the positions of the stream's named consumers.
func (s *Stream) save() error {
	s.b.saving.Lock()
	defer s.b.saving.Unlock()
	if s.dir == "" || s.dropped {
		return nil
	}
	positions, changed := make([]map[string]uint64, len(s.partitions)), s.saved == nil
	for i, p := range s.partitions {
		p.mu.Lock()
		p.collect()
		positions[i] = p.ring.Positions()
		p.mu.Unlock()
		changed = changed || !maps.Equal(positions[i], s.saved[i])
	}
	if !changed {
		return nil
	}
	if err := writeJSON(filepath.Join(s.dir, positionsName), positions); err != nil {
		return err
	}
	s.saved = positions
	return nil
}

// Drain ends all streams in this process. The broker's successor continues the non-volatile
// streams. Drain may be called more than once.
func (b *Broker) Drain() {
	b.drain.Do(func() {
		b.stop()
		b.done.Wait()
		b.mu.Lock()
		b.failed = errDraining
		streams := slices.Collect(maps.Values(b.streams))
		b.mu.Unlock()
		b.save()
		for _, s := range streams {
			s.end(errDraining)
		}
		b.mu.Lock()
		for _, s := range streams {
			delete(b.streams, name{s.Namespace, s.Name})
			b.count(s.Namespace, -logBytes(s.Config))
		}
		b.mu.Unlock()
		b.files.Close()
		b.forgetKept()
		if b.lock != nil {
			b.lock.Close()
		}
		if b.o.Metrics != nil {
			b.o.Metrics.Unregister(collector{b})
		}
	})
}
