package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

const patience = 30 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func begin(t *testing.T, dir string) *Broker {
	b := New(Options{Dir: dir})
	t.Cleanup(b.Drain)
	return b
}

func open(t *testing.T, b *Broker, c *nodeapi.StreamConfig) *Stream {
	t.Helper()
	s, _, err := b.Open(soon(t), "ns", "s", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// small is the configuration of a stream with 4 objects. Each object has room for two records of
// the function put.
var small = &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, StallMillis: 3_600_000, KeepMillis: 3_600_000}

// put appends a record, and reports whether there was room in time.
func put(t *testing.T, s *Stream, what string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, n, err := s.Append(ctx, 0, []stream.Record{{Data: []byte(what + strings.Repeat(" ", 400-len(what)))}}, nil)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return n == 1
}

// killed returns a copy of a broker's folder. The copy looks as if the broker's process had been
// killed at this moment.
func killed(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "streams")
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(out, 0o700); err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, s *Stream, from uint64) (out []string) {
	t.Helper()
	b, err := s.Read(soon(t), &nodeapi.ReadData{Offset: &from}, 1000, func(stream.Record) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Records {
		out = append(out, strings.TrimSpace(string(r.Data)))
	}
	return out
}

// TestNameSurvives checks that records are kept for a named consumer from the moment when it gets
// the answer to its subscription. Even the successor of a killed broker keeps them.
func TestNameSurvives(t *testing.T) {
	for way, join := range map[string]func(s *Stream) error{
		"push": func(s *Stream) error {
			u, err := s.Subscribe(&nodeapi.SubscribeData{Consumer: "me"}, nil)
			if err == nil {
				t.Cleanup(u.Close)
			}
			return err
		},
		"pull": func(s *Stream) error {
			_, err := s.Read(soon(t), &nodeapi.ReadData{Consumer: "me"}, 1, func(stream.Record) bool { return true })
			return err
		},
	} {
		dir := filepath.Join(t.TempDir(), "streams")
		s := open(t, begin(t, dir), small)
		for i := range 4 {
			put(t, s, fmt.Sprint(i))
		}
		if err := join(s); err != nil {
			t.Fatal(err)
		}
		again := open(t, begin(t, killed(t, dir)), nil)
		n := 4
		for ; n < 20 && put(t, again, fmt.Sprint(n)); n++ {
		}
		if n != 8 {
			t.Errorf("%s: there are %d records of a ring of 8, though the consumer has read none", way, n)
		}
		b, err := again.Read(soon(t), &nodeapi.ReadData{Consumer: "me"}, 1, func(stream.Record) bool { return true })
		if err != nil || b.Offset != 0 || b.Missed != 0 {
			t.Errorf("%s: it reads on at %d, %d missed: %v", way, b.Offset, b.Missed, err)
		}
	}
}

// TestKilledWriting checks that a writer may be killed at any point. All appended records must
// exist afterwards, and the next offset must be correct.
func TestKilledWriting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	s := open(t, begin(t, dir), small)
	for i := range 11 { // these records fill objects 0 to 4; object 5 has one record, and the ring has objects 2 to 5
		put(t, s, fmt.Sprint(i))
	}
	const begun, slot2 = 64, stream.HeaderBytes + 2*1024
	for name, harm := range map[string]func(b []byte){
		"nothing":                      func([]byte) {},
		"a record that is half there":  func(b []byte) { copy(b[stream.HeaderBytes+1024+64+424:], "\x90\x01half") },
		"an object about to be taken":  func(b []byte) { copy(b[slot2:], "\xff\xff\xff\xff\xff\xff\xff\xff") },
		"an object taken, not counted": func(b []byte) { copy(b[slot2:], "\x06\x00\x00\x00\x00\x00\x00\x00") },
	} {
		left := killed(t, dir)
		path := filepath.Join(left, "ns", "s", "0.ring")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if b[begun] != 6 {
			t.Fatalf("%d objects were begun", b[begun])
		}
		harm(b)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, begin(t, left), nil)
		if again.Incarnation != s.Incarnation {
			t.Error("it is another stream")
		}
		want := "[6 7 8 9 10]"
		if got := fmt.Sprint(read(t, again, 6)); got != want {
			t.Errorf("%s: %s is there, not %s", name, got, want)
		}
		first, _, err := again.Append(soon(t), 0, []stream.Record{{Data: []byte("more")}}, nil)
		if err != nil || first != 11 {
			t.Errorf("%s: the next is %d: %v", name, first, err)
		}
	}
}

// TestHalfWritten checks that a broker removes the temporary files of a killed broker.
func TestHalfWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	put(t, open(t, begin(t, dir), small), "a")
	after := killed(t, dir)
	left := filepath.Join(after, "ns", "s", ".positions.json.1234")
	if err := os.WriteFile(left, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, begin(t, after), nil)
	if got := read(t, s, 0); len(got) != 1 || got[0] != "a" {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", left, err)
	}
}

// TestDamaged checks that a broker does not change a stream that it cannot read, and restores the
// other streams. It removes an incomplete stream.
func TestDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	b := begin(t, dir)
	put(t, open(t, b, small), "here")
	for _, name := range []string{"config", "ring", "unfinished"} {
		if _, _, err := b.Open(soon(t), "ns", name, small, nil); err != nil {
			t.Fatal(err)
		}
	}
	left := killed(t, dir)
	path := func(parts ...string) string { return filepath.Join(append([]string{left, "ns"}, parts...)...) }
	if err := errors.Join(os.WriteFile(path("config", configName), []byte("{"), 0o600),
		os.WriteFile(path("ring", "0.ring"), make([]byte, stream.SegmentBytes(4, 1024)), 0o600),
		os.Remove(path("unfinished", configName))); err != nil {
		t.Fatal(err)
	}
	again := begin(t, left)
	names, err := again.List(soon(t), "ns")
	if err != nil || fmt.Sprint(names) != "[s]" {
		t.Errorf("%v, %v", names, err)
	}
	if got := read(t, open(t, again, nil), 0); fmt.Sprint(got) != "[here]" {
		t.Error(got)
	}
	for name, there := range map[string]bool{"config": true, "ring": true, "unfinished": false} {
		if _, err := os.Stat(path(name)); (err == nil) != there {
			t.Errorf("the folder of %s: %v", name, err)
		}
	}
}

// TestLostRing checks that a stream with an incomplete ring file does not start again with the same
// incarnation, because offsets would be assigned twice. The broker logs the error and leaves the
// file unchanged. When the stream is created again, it gets another incarnation.
func TestLostRing(t *testing.T) {
	const slot = stream.HeaderBytes + 64
	for name, harm := range map[string]func(path string) error{
		"it is missing":         os.Remove,
		"it is empty":           func(path string) error { return os.Truncate(path, 0) },
		"it is cut short":       func(path string) error { return os.Truncate(path, stream.HeaderBytes+1024) },
		"it is longer":          func(path string) error { return os.Truncate(path, 1<<20) },
		"it was cut and filled": func(path string) error { return errors.Join(os.Truncate(path, slot), os.Truncate(path, 8192)) },
	} {
		dir := filepath.Join(t.TempDir(), "streams")
		s := open(t, begin(t, dir), small)
		for i := range 7 { // these records fill objects 0 to 3
			put(t, s, fmt.Sprint(i))
		}
		left := killed(t, dir)
		path := filepath.Join(left, "ns", "s", "0.ring")
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Stat(path)
		var log bytes.Buffer
		b := New(Options{Dir: left, Log: slog.New(slog.NewTextHandler(&log, nil))})
		t.Cleanup(b.Drain)
		if again, err := b.Find(soon(t), "ns", "s"); err == nil {
			t.Errorf("%s: the stream %s is there, with %v; it was %s", name, again.Incarnation, again.State(), s.Incarnation)
			continue
		} else if !strings.Contains(err.Error(), "damaged or missing") {
			t.Errorf("%s: %v", name, err)
		}
		after, _ := os.Stat(path)
		if (before == nil) != (after == nil) || before != nil && before.Size() != after.Size() {
			t.Errorf("%s: the file was changed", name)
		}
		if !strings.Contains(log.String(), "not taken up") || !strings.Contains(log.String(), path) {
			t.Errorf("%s: the log says %q", name, &log)
		}
		if again := open(t, b, small); again.Incarnation == s.Incarnation || again.State()[0].Next != 0 {
			t.Errorf("%s: the stream that is made anew is %s, with %v", name, again.Incarnation, again.State())
		}
	}
}

// TestSuccessor checks that only one broker at a time uses a folder. The next broker gets the
// folder, with all streams, when the first broker has drained.
func TestSuccessor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	a := begin(t, dir)
	s := open(t, a, small)
	u, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	b := begin(t, dir)
	put(t, s, "one")
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Find(short, "ns", "s"); err == nil {
		t.Fatal("two brokers have one folder")
	}
	waiting := make(chan string, 1)
	go func() {
		s, err := b.Find(context.Background(), "ns", "s")
		if err != nil {
			waiting <- err.Error()
			return
		}
		waiting <- fmt.Sprint(read(t, s, 0))
	}()
	a.Drain()
	if got := <-waiting; got != "[one]" {
		t.Error(got)
	}
	<-u.Done()
	_, _, err = s.Append(soon(t), 0, []stream.Record{{}}, nil)
	for _, err := range []error{u.Err(), err} {
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeDraining}) {
			t.Errorf("the first broker's consumer and producer are told %v", err)
		}
	}
}

// TestOpenFolder checks that a broker refuses a folder that other users may read.
func TestOpenFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := begin(t, dir).List(soon(t), "ns"); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
		t.Errorf("%v", err)
	}
}

// TestDeleted checks that a stream that is deleted and created again has nothing of the former
// stream.
func TestDeleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	b := begin(t, dir)
	for range 5 {
		s := open(t, b, small)
		if state := s.State()[0]; state.Next != 0 {
			t.Fatalf("a new stream has %d records", state.Next)
		}
		put(t, s, "x")
		if err := b.Delete(soon(t), "ns", "s"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Append(soon(t), 0, []stream.Record{{}}, nil); err == nil {
			t.Fatal("what is deleted was appended to")
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "ns")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all != 0 || len(b.bytes) != 0 {
		t.Errorf("%d bytes are counted, %v", b.all, b.bytes)
	}
}

// TestGivingUp checks that an append that gives up while it waits for a consumer releases
// everything: the thread that counts as sleeping, and the mapping of the consumer's page.
func TestGivingUp(t *testing.T) {
	s := open(t, begin(t, ""), small)
	u, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if !put(t, s, "x") {
			t.Fatal("a ring of 8 has no room")
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		// An append with an expired context may or may not still be executed.
		if _, n, _ := s.Append(gone, 0, []stream.Record{{Data: make([]byte, 400)}}, nil); n > 0 {
			t.Fatal("it was appended to a ring that is full")
		}
	}
	closed := make(chan struct{})
	go func() { u.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("the consumer's page is still in use")
	}
	if !s.b.sleepers.Take("other", maxSleepers/2) {
		t.Error("threads are counted as asleep")
	}
}

// TestPositionShares checks that one namespace cannot use up all positions for subscriptions, so
// another namespace still gets some.
func TestPositionShares(t *testing.T) {
	b := New(Options{Limits: Limits{Positions: 64}})
	t.Cleanup(b.Drain)
	subscribe := func(namespace string) (n int) {
		t.Helper()
		s, _, err := b.Open(soon(t), namespace, "s", &nodeapi.StreamConfig{Partitions: 8, ObjectBytes: 1024,
			Objects: 4}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for ; ; n++ {
			u, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
			if err != nil {
				if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) {
					t.Fatal(err)
				}
				return n
			}
			t.Cleanup(u.Close)
		}
	}
	if first, second := subscribe("x"), subscribe("y"); first != 4 || second != 2 {
		t.Errorf("one namespace has %d subscriptions of 8 partitions, then another one %d; want 4 and 2", first, second)
	}
}

// TestMetrics checks that the metrics are correct, and disappear when the broker has drained.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := New(Options{Metrics: registry})
	s := open(t, b, &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4})
	waits, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	skips, err := s.Subscribe(&nodeapi.SubscribeData{Skip: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		put(t, s, "x")
	}
	if put(t, s, "x") {
		t.Fatal("nobody was waited for")
	}
	if _, err := b.Files().Make("x", 10, false); err != nil {
		t.Fatal(err)
	}
	waits.Close()
	put(t, s, "x") // this record makes the broker skip records for the other consumer
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		m := f.Metric[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	if got["netcraq_streams_waits_total"] < 1 {
		t.Error("no wait was counted")
	}
	delete(got, "netcraq_streams_waits_total")
	want := map[string]float64{"netcraq_streams": 1, "netcraq_streams_subscriptions": 1,
		// the ring, the cursor page of the consumer "skips", and the page of the file
		"netcraq_streams_memory_bytes": 8192 + 4096 + 4096,
		"netcraq_streams_kept_bytes":   0,
		"netcraq_streams_files":        1, "netcraq_streams_files_bytes": 10, "netcraq_streams_cache_total": 0,
		"netcraq_streams_records_total": 9, "netcraq_streams_bytes_total": 3600, "netcraq_streams_moved_on_total": 1,
		"netcraq_streams_source_failures_total": 0, "netcraq_streams_source_missed_total": 0}
	if !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	skips.Close()
	b.Drain()
	if families, _ := registry.Gather(); len(families) != 0 {
		t.Errorf("%d metrics are left", len(families))
	}
}

// TestOpenedAtOnce checks that a stream is created only once when several callers create it
// concurrently, while the broker evicts unused files to free memory.
func TestOpenedAtOnce(t *testing.T) {
	const files = 64
	full, err := complete(*small)
	if err != nil {
		t.Fatal(err)
	}
	size := bytesOf(full)
	b := New(Options{Limits: Limits{Bytes: size + size/2}})
	t.Cleanup(b.Drain)
	for round := range 200 {
		for n := range files {
			f, err := b.Files().Make("ns", (size+size/2)/files, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Files().Seal("ns", f.Name, fmt.Sprint(round, "/", n)); err != nil {
				t.Fatal(err)
			}
			f.Release()
		}
		var all sync.WaitGroup
		var made atomic.Int32
		var streams sync.Map
		for range 8 {
			all.Go(func() {
				s, new, err := b.Open(soon(t), "ns", "s", small, nil)
				if err != nil {
					t.Error(err)
				}
				if new {
					made.Add(1)
				}
				streams.Store(s, true)
			})
		}
		all.Wait()
		different := 0
		streams.Range(func(any, any) bool { different++; return true })
		if made.Load() != 1 || different != 1 {
			t.Fatalf("round %d: it was made %d times, and callers have %d streams", round, made.Load(), different)
		}
		if err := b.Delete(soon(t), "ns", "s"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMissedIsToldAgain checks that a named consumer gets the number of missed records until it has
// confirmed the number. This includes the cases of a failed request and of a lost answer.
func TestMissedIsToldAgain(t *testing.T) {
	skip := *small
	skip.Slow = nodeapi.SlowSkip
	atOnce, cancel := context.WithCancel(t.Context())
	cancel() // an ended context, so that reads do not wait for records
	all := func(stream.Record) bool { return true }
	pull := func(s *Stream, at *uint64) (offset, missed uint64, err error) {
		b, err := s.Read(atOnce, &nodeapi.ReadData{Consumer: "me", Offset: at}, 1, all)
		return b.Offset, b.Missed, err
	}
	push := func(s *Stream) (offset, missed uint64, err error) {
		u, err := s.Subscribe(&nodeapi.SubscribeData{Consumer: "me"}, nil)
		if err != nil {
			return 0, 0, err
		}
		u.Close() // simulate that the answer was lost
		return u.Answer.Partitions[0].Offset, u.Answer.Partitions[0].Missed, nil
	}
	for way, join := range map[string]func(s *Stream) (offset, missed uint64, err error){
		"push": push,
		"pull": func(s *Stream) (uint64, uint64, error) { return pull(s, nil) },
	} {
		dir := filepath.Join(t.TempDir(), "streams")
		s := open(t, begin(t, dir), &skip)
		put(t, s, "0")
		one := uint64(1)
		if _, _, err := pull(s, &one); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			put(t, s, fmt.Sprint(i+1))
		}
		for range 2 { // the first of the two answers counts as lost
			if offset, missed, err := join(s); err != nil || offset == 1 || missed != offset-1 {
				t.Errorf("%s: it begins at %d, %d missed: %v", way, offset, missed, err)
			}
		}
		again := open(t, begin(t, killed(t, dir)), nil)
		if offset, missed, err := join(again); err != nil || offset == 1 || missed != offset-1 {
			t.Errorf("%s, after a kill: it begins at %d, %d missed: %v", way, offset, missed, err)
		}
		// The consumer has received the number of missed records, and continues.
		next := uint64(20)
		if _, missed, err := pull(s, &next); err != nil || missed != 0 {
			t.Errorf("%s: %d missed: %v", way, missed, err)
		}
		if offset, missed, err := join(s); err != nil || offset != next || missed != 0 {
			t.Errorf("%s: it begins at %d, %d missed: %v", way, offset, missed, err)
		}
	}
}

// TestOwnedWithoutName checks that a consumer without a name has an owner, but the broker remembers
// no position for it.
func TestOwnedWithoutName(t *testing.T) {
	s := open(t, begin(t, filepath.Join(t.TempDir(), "streams")), small)
	put(t, s, "0")
	u, err := s.Subscribe(&nodeapi.SubscribeData{Consumer: OwnName("one", "")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Read(soon(t), &nodeapi.ReadData{Consumer: OwnName("one", "")}, 1, func(stream.Record) bool { return true })
	if err != nil || len(b.Records) != 1 {
		t.Errorf("%d records were read: %v", len(b.Records), err)
	}
	u.Close()
	if names := s.partitions[0].ring.Positions(); len(names) > 0 {
		t.Errorf("positions of %v are remembered", names)
	}
}

// TestNotWrittenDown checks the case that a position cannot be stored. The consumer must get an
// error each time, and the stored position of its name must not change.
func TestNotWrittenDown(t *testing.T) {
	atOnce, cancel := context.WithCancel(t.Context())
	cancel() // an ended context, so that reads do not wait for records
	for way, join := range map[string]func(s *Stream, name, from string) error{
		"push": func(s *Stream, name, from string) error {
			u, err := s.Subscribe(&nodeapi.SubscribeData{Consumer: name, From: from}, nil)
			if err == nil {
				u.Close()
			}
			return err
		},
		"pull": func(s *Stream, name, from string) error {
			d := &nodeapi.ReadData{Consumer: name, From: from}
			_, err := s.Read(atOnce, d, 1, func(stream.Record) bool { return true })
			return err
		},
	} {
		dir := filepath.Join(t.TempDir(), "streams")
		s := open(t, begin(t, dir), small)
		put(t, s, "0")
		if err := join(s, "known", ""); err != nil {
			t.Fatal(err)
		}
		put(t, s, "1")
		s.b.saving.Lock() // prevents the periodic save during the test
		path := filepath.Join(s.dir, positionsName)
		err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
		s.b.saving.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := join(s, "new", nodeapi.FromLatest); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeInternal}) {
				t.Errorf("%s: a name that is not written down: %v", way, err)
			}
		}
		if next, known := s.partitions[0].ring.Where("new"); known {
			t.Errorf("%s: a name that could not be written down is at %d", way, next)
		}
		if way == "push" {
			if err := join(s, "known", nodeapi.FromLatest); err == nil {
				t.Error("a position that is not written down was answered")
			}
			if next, _ := s.partitions[0].ring.Where("known"); next != 0 {
				t.Errorf("it failed, and the consumer is at %d", next)
			}
		}
	}
}

// TestWrongOffset checks the case that a producer was killed during an append. A specific error
// code tells its successor that the append still continued, and nothing is appended twice.
func TestWrongOffset(t *testing.T) {
	s := open(t, begin(t, ""), small)
	u, err := s.Subscribe(&nodeapi.SubscribeData{Consumer: "slow"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	records := make([]stream.Record, 12) // more than the ring has room for, which is 8
	for i := range records {
		records[i].Data = make([]byte, 400)
	}
	at := uint64(0)
	killed := make(chan int, 1)
	go func() {
		_, n, _ := s.Append(context.Background(), 0, records, &at)
		killed <- n
	}()
	for s.State()[0].Next < 8 {
		time.Sleep(time.Millisecond)
	}
	at8 := s.State()[0].Next // the successor begins at this offset, while the first append still waits
	u.Close()
	s.partitions[0].mu.Lock()
	s.partitions[0].ring.Forget("slow")
	s.partitions[0].mu.Unlock()
	if n := <-killed; n != len(records) {
		t.Fatalf("%d were appended", n)
	}
	next, n, err := s.Append(soon(t), 0, records[:1], &at8)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeWrongOffset}) || n != 0 || next != 12 {
		t.Errorf("%d appended, the next is %d: %v", n, next, err)
	}
	if next := s.State()[0].Next; next != 12 {
		t.Errorf("the next is %d", next)
	}
}
