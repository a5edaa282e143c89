package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

const patience = 30 * time.Second

// world is a node's server. A test can restart the server with the data that it has stored.
type world struct {
	t      testing.TB
	socket string
	dir    string
	store  *store.Memory
	server *server.Server
	counts *prometheus.Registry // metrics of the server that was started last
	done   sync.WaitGroup
}

func newWorld(t testing.TB) *world {
	dir := t.TempDir()
	w := &world{t: t, socket: filepath.Join(dir, "s"), dir: filepath.Join(dir, "streams"), store: store.NewMemory(1024)}
	w.start()
	t.Cleanup(func() { w.server.Close(); w.done.Wait() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	_ = os.Remove(w.socket)
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // The next server's socket has the same path.
	w.counts = prometheus.NewRegistry()
	s := server.New(server.Config{Store: w.store, Name: "test", Node: "here", Namespace: "default",
		Metrics: w.counts, Streams: &broker.Options{Dir: w.dir}})
	w.server = s
	w.done.Go(func() { _ = s.Serve(l) })
}

// reads counts the requests for records that the server has answered without an error.
func (w *world) reads() int {
	w.t.Helper()
	all, err := w.counts.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			// The labels are code and func.
			if l := m.GetLabel(); family.GetName() == "netcraq_nodeapi_requests_total" &&
				l[0].GetValue() == "ok" && l[1].GetValue() == nodeapi.FuncRead {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	w.t.Fatal("the server counts no reads")
	return 0
}

func (w *world) client() *node.Client {
	w.t.Helper()
	c, err := node.Connect(w.t.Context(), node.Config{Socket: w.socket})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	return c
}

func (w *world) open(cfg streams.Config) *streams.Reader {
	w.t.Helper()
	cfg.Socket = w.socket
	r, err := streams.Open(soon(w.t), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(r.Close)
	return r
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// to returns a request that appends values to the first partition of a stream.
func to(name string, values ...string) nodeapi.AppendData {
	d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: name}}
	for _, v := range values {
		d.Records = append(d.Records, nodeapi.RecordData{Value: &v})
	}
	return d
}

// both runs a test with each way of reading: push and pull.
func both(t *testing.T, test func(t *testing.T, pull bool)) {
	t.Run("push", func(t *testing.T) { test(t, false) })
	t.Run("pull", func(t *testing.T) { test(t, true) })
}

// collect reads n records, and checks that their offsets are consecutive and begin with from.
func collect(t *testing.T, r *streams.Reader, n int, from uint64) (out []string) {
	t.Helper()
	ctx := soon(t)
	for len(out) < n {
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", len(out), err)
		}
		for offset, record := range b.Records() {
			if offset != from+uint64(len(out)) {
				t.Fatalf("record %d came after %d", offset, from+uint64(len(out)))
			}
			out = append(out, string(record.Data))
		}
	}
	return out
}

func TestRead(t *testing.T) {
	both(t, func(t *testing.T, pull bool) {
		w := newWorld(t)
		c, ctx := w.client(), soon(t)
		_, err := streams.Open(ctx, streams.Config{Socket: w.socket, Stream: "s", Pull: pull})
		if node.CodeOf(err) != nodeapi.CodeInvalidArgument {
			t.Errorf("a stream that is not there: %v", err)
		}
		a, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 8})
		if err != nil || !a.Made {
			t.Fatal(a, err)
		}
		r := w.open(streams.Config{Stream: "s", Pull: pull, Consumer: "me"})
		// many is many times the number of records in the ring, so that the ring wraps around again
		// and again.
		const many = 2000
		var want []string
		done := make(chan error, 1)
		for i := range many {
			want = append(want, fmt.Sprintf("%d %s", i, strings.Repeat("x", i%300)))
		}
		go func() {
			for rest := want; len(rest) > 0; {
				a, err := c.Append(ctx, to("s", rest[:min(7, len(rest))]...))
				if err != nil {
					done <- err
					return
				}
				rest = rest[a.Appended:]
			}
			done <- nil
		}()
		got := collect(t, r, many, 0)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("record %d is %q, not %q", i, got[i], want[i])
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// After a restart, the server has all appended records, and each reader continues with its next
// record.
func TestServerAnew(t *testing.T) {
	both(t, func(t *testing.T, pull bool) {
		w := newWorld(t)
		c, ctx := w.client(), soon(t)
		if _, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{}); err != nil {
			t.Fatal(err)
		}
		put := func(v ...string) {
			t.Helper()
			if _, err := c.Append(ctx, to("s", v...)); err != nil {
				t.Fatal(err)
			}
		}
		r := w.open(streams.Config{Stream: "s", Pull: pull})
		put("a", "b")
		collect(t, r, 2, 0)
		put("c")
		w.server.Close()
		w.start()
		put("d")
		if got := collect(t, r, 2, 2); got[0] != "c" || got[1] != "d" {
			t.Error(got)
		}
	})
}

// When a server is replaced, its streams pass to the next server, where readers and producers
// continue.
func TestServerReplaced(t *testing.T) {
	both(t, func(t *testing.T, pull bool) {
		w := newWorld(t)
		c, ctx := w.client(), soon(t)
		if _, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{}); err != nil {
			t.Fatal(err)
		}
		r := w.open(streams.Config{Stream: "s", Pull: pull})
		put := func(v string) {
			t.Helper()
			if _, err := c.Append(ctx, to("s", v)); err != nil {
				t.Fatal(err)
			}
		}
		put("a")
		collect(t, r, 1, 0)
		old := w.server
		// The new server has the same path, while the old server still serves its connections.
		w.start()
		drained := make(chan error, 1)
		go func() { drained <- old.Shutdown(ctx) }()
		put("b")
		put("c")
		if got := collect(t, r, 2, 1); got[0] != "b" || got[1] != "c" {
			t.Error(got)
		}
		if err := <-drained; err != nil {
			t.Errorf("the old server, which all have left: %v", err)
		}
	})
}

// A stream can carry the changes of keys.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	if _, err := c.Put(ctx, "cfg/a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	config := &nodeapi.StreamConfig{Source: &nodeapi.StreamSource{Keys: &nodeapi.KeysSource{Prefix: "cfg/"}}}
	if _, err := c.OpenStream(ctx, "keys", config); err != nil {
		t.Fatal(err)
	}
	r := w.open(streams.Config{Stream: "keys"})
	if got := collect(t, r, 1, 0); got[0] != `{"key":"cfg/a","found":true,"value":"1","version":"1.1"}` {
		t.Error(got)
	}
	if _, err := c.Put(ctx, "other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "cfg/a", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, r, 1, 1); got[0] != `{"key":"cfg/a","found":true,"value":"2","version":"1.2"}` {
		t.Error(got)
	}
	w.server.Close()
	w.start() // The store, which has the keys, has outlived the server.
	if _, err := c.Put(ctx, "cfg/b", []byte("3")); err != nil {
		t.Fatal(err)
	}
	// A record that the stream already has is not appended again.
	if got := collect(t, r, 1, 2); got[0] != `{"key":"cfg/b","found":true,"value":"3","version":"1.1"}` {
		t.Error(got)
	}
}

// A value that is too large for a record does not stop a stream of keys. All changes of a key are
// in one partition.
func TestKeysTooLarge(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	config := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, Partitions: 4,
		Source: &nodeapi.StreamSource{Keys: &nodeapi.KeysSource{Prefix: "cfg/"}}}
	if _, err := c.OpenStream(ctx, "keys", config); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 950)
	for _, value := range []string{large, "small"} {
		for _, key := range []string{"cfg/a", "cfg/b", "cfg/c", "cfg/d", "cfg/e", "cfg/f"} {
			if _, err := c.Put(ctx, key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		r := w.open(streams.Config{Stream: "keys"})
		last, where := map[string]nodeapi.Event{}, map[string]int{}
		for done := 0; done < 6; {
			b, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range b.Records() {
				var e nodeapi.Event
				if err := json.Unmarshal(record.Data, &e); err != nil {
					t.Fatal(err)
				}
				if p, ok := where[e.Key]; ok && p != b.Partition {
					t.Fatalf("%s is in two partitions", e.Key)
				}
				last[e.Key], where[e.Key] = e, b.Partition
			}
			done = 0
			for _, e := range last {
				left := e.Value == nil && e.Error != nil && e.Error.Code == nodeapi.CodeTooLarge
				if value == large && left || value != large && e.Value != nil && *e.Value == value {
					done++
				}
			}
		}
	}
}

// Depending on its configuration, a stream waits for a slow reader, or skips records and tells the
// reader how many.
func TestSlow(t *testing.T) {
	for _, slow := range []string{nodeapi.SlowWait, nodeapi.SlowSkip} {
		t.Run(slow, func(t *testing.T) {
			w := newWorld(t)
			c, ctx := w.client(), soon(t)
			config := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, Slow: slow, StallMillis: 3_600_000}
			if _, err := c.OpenStream(ctx, "s", config); err != nil {
				t.Fatal(err)
			}
			r := w.open(streams.Config{Stream: "s", Skip: slow == nodeapi.SlowSkip})
			text := strings.Repeat("x", 400) // An object holds two such records.
			appended := 0
			for range 20 {
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				a, err := c.Append(short, to("s", text))
				cancel()
				if err != nil {
					if slow == nodeapi.SlowSkip || !late(err) {
						t.Fatal(err)
					}
					break
				}
				appended += a.Appended
			}
			b, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case slow == nodeapi.SlowWait && (appended != 8 || b.Offset != 0 || b.Missed != 0):
				t.Errorf("%d were appended while nobody read; the first that is read is %d, %d missed", appended, b.Offset, b.Missed)
			case slow == nodeapi.SlowSkip && (appended != 20 || b.Offset != 18 || b.Missed != 18):
				t.Errorf("%d were appended while nobody read; the first that is read is %d, %d missed", appended, b.Offset, b.Missed)
			}
		})
	}
}

// If records are overwritten while they are read, they count as missed records, and only once.
func TestOverrun(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	config := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, Slow: nodeapi.SlowSkip}
	if _, err := c.OpenStream(ctx, "s", config); err != nil {
		t.Fatal(err)
	}
	r := w.open(streams.Config{Stream: "s"})
	before := uint64(0)
	var last *streams.Batch
	for range 4 {
		for range 20 {
			if _, err := c.Append(ctx, to("s", strings.Repeat("x", 400))); err != nil {
				t.Fatal(err)
			}
		}
		if last != nil {
			if err := last.Release(); err != streams.ErrOverrun {
				t.Fatalf("it was overwritten, and released: %v", err)
			}
		}
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		last = b
		if b.Missed != b.Offset-before {
			t.Errorf("%d came behind %d, and %d were missed", b.Offset, before, b.Missed)
		}
		before = b.Offset
	}
}

// When a named consumer disconnects, the server keeps its unread records. When the consumer comes
// back, it continues with these records.
func TestName(t *testing.T) {
	both(t, func(t *testing.T, pull bool) {
		w := newWorld(t)
		c, ctx := w.client(), soon(t)
		config := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, KeepMillis: 3_600_000}
		if _, err := c.OpenStream(ctx, "s", config); err != nil {
			t.Fatal(err)
		}
		put := func() error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := c.Append(ctx, to("s", strings.Repeat("x", 400)))
			return err
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		r := w.open(streams.Config{Stream: "s", Consumer: "me", Pull: pull})
		collect(t, r, 1, 0)
		if _, err := r.Next(canceled()); !errors.Is(err, context.Canceled) { // this call has released the first batch
			t.Fatal(err)
		}
		r.Close()
		n := 1
		for ; n < 20 && put() == nil; n++ {
		}
		if n != 8 {
			t.Errorf("%d were appended while the consumer was away", n)
		}
		r = w.open(streams.Config{Stream: "s", Consumer: "me", Pull: pull})
		collect(t, r, n-1, 1)
	})
}

// TestMissedIsToldLater checks that a named consumer's first batch says how many records the
// consumer missed, even if an earlier reader of that name was closed before its first batch.
func TestMissedIsToldLater(t *testing.T) {
	both(t, func(t *testing.T, pull bool) {
		w := newWorld(t)
		c, ctx := w.client(), soon(t)
		small := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, Slow: nodeapi.SlowSkip}
		if _, err := c.OpenStream(ctx, "s", small); err != nil {
			t.Fatal(err)
		}
		w.open(streams.Config{Stream: "s", Consumer: "me", Pull: pull}).Close()
		for range 20 {
			if _, err := c.Append(ctx, to("s", strings.Repeat("x", 400))); err != nil {
				t.Fatal(err)
			}
		}
		before := w.reads()
		r := w.open(streams.Config{Stream: "s", Consumer: "me", Pull: pull})
		if pull {
			// Open reads once. The reader then also requests its first batch, which the test does
			// not fetch.
			poll.Until(t, patience, "an answer", func() bool { return w.reads() >= before+2 })
		}
		r.Close()
		b, err := w.open(streams.Config{Stream: "s", Consumer: "me", Pull: pull}).Next(ctx)
		if err != nil || b.Offset == 0 || b.Missed != b.Offset {
			t.Fatalf("the first batch tells of none that were missed (%v)", err)
		}
	})
}

// late returns whether an append timed out. On a busy machine, the server's answer to that may
// itself be late.
func late(err error) bool {
	return node.CodeOf(err) == nodeapi.CodeTimeout || node.CodeOf(err) == nodeapi.CodeOutcomeUnknown
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Closed readers leave no file descriptor and no mapping behind.
func TestLeaks(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	if _, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	mappings := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "netcraq-")
	}
	once := func() {
		r, err := streams.Open(ctx, streams.Config{Socket: w.socket, Stream: "s"})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	once()
	fds, maps := 0, 0
	poll.Until(t, patience, "the first reader to be gone", func() bool {
		fds, maps = descriptors(), mappings()
		return maps == 3
	}, func() string { return fmt.Sprintf("%d descriptors, %d mappings", fds, maps) })
	for range 50 {
		once()
	}
	poll.Until(t, patience, "what readers held to be given back", func() bool {
		return descriptors() <= fds && mappings() <= maps
	}, func() string {
		return fmt.Sprintf("%d descriptors, %d before; %d mappings, %d before", descriptors(), fds, mappings(), maps)
	})
	if err := c.DeleteStream(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if n := mappings(); n != 0 {
		t.Errorf("%d mappings of a stream that is deleted", n)
	}
}

// TestHold checks that a held record is not overwritten, even after its reader has read on or was
// closed.
func TestHold(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	const hour = 3_600_000
	if _, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4,
		StallMillis: hour}); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 400) // An object holds two such records.
	if _, err := c.Append(ctx, to("s", "first")); err != nil {
		t.Fatal(err)
	}
	r := w.open(streams.Config{Stream: "s"})
	b, err := r.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var first streams.Record
	for _, first = range b.Records() {
	}
	held, again := b.Hold(), b.Hold()
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	// fill appends until a held record prevents the next append.
	fill := func() (n int) {
		for ; n < 50; n++ {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			a, err := c.Append(ctx, to("s", value))
			cancel()
			if err != nil || a.Appended == 0 {
				return n
			}
		}
		t.Error("the node has overwritten what is held")
		return n
	}
	collect(t, r, fill(), 1)
	fill()
	held.Release()
	if held.Valid() || !again.Valid() {
		t.Error("of two holds that one has ended is not what they say")
	}
	fill()
	r.Close()
	fill()
	if got := string(first.Data); got != "first" || !again.Valid() {
		t.Errorf("it is %q", got)
	}
	again.Release()
	if again.Valid() {
		t.Error("what was let go of is valid")
	}
	for range 20 {
		if _, err := c.Append(ctx, to("s", value)); err != nil {
			t.Fatal(err)
		}
	}
	r = w.open(streams.Config{Stream: "s"})
	if b, err = r.Next(ctx); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := b.Release(); err != nil {
		t.Error("what was unmapped meanwhile was released:", err)
	}
}

// TestHeldForTooLong checks that if a record is held for longer than the stream allows, the node
// overwrites it, and the reader reports that.
func TestHeldForTooLong(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	if _, err := c.OpenStream(ctx, "s", &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4,
		StallMillis: 50}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(ctx, to("s", "first")); err != nil {
		t.Fatal(err)
	}
	r := w.open(streams.Config{Stream: "s"})
	b, err := r.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h := b.Hold()
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := c.Append(ctx, to("s", strings.Repeat("x", 900))); err != nil {
			t.Fatal(err)
		}
	}
	if h.Valid() {
		t.Error("what was overwritten is valid")
	}
	h.Release()
	if _, err := r.Next(ctx); !errors.Is(err, streams.ErrOverrun) {
		t.Errorf("the reader said %v", err)
	}
	if b, err = r.Next(ctx); err != nil || b.Len() == 0 {
		t.Error(b, err)
	}
}

// In TestWaitedForAgain, a reader holds a record for so long that the server overwrites it. When
// the reader reads on, the producer must wait for it again, as for other readers.
func TestWaitedForAgain(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.client(), soon(t)
	const stall = 500 * time.Millisecond
	config := &nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, StallMillis: int(stall.Milliseconds())}
	if _, err := c.OpenStream(ctx, "s", config); err != nil {
		t.Fatal(err)
	}
	append := func(n int) {
		for range n {
			// Each of these records fills an object.
			if _, err := c.Append(ctx, to("s", strings.Repeat("x", 900))); err != nil {
				t.Fatal(err)
			}
		}
	}
	append(1)
	r := w.open(streams.Config{Stream: "s"})
	b, err := r.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h := b.Hold()
	defer h.Release()
	append(6)
	if _, err := r.Next(ctx); !errors.Is(err, streams.ErrOverrun) || h.Valid() {
		t.Fatalf("what was held for too long was not taken: %v", err)
	}
	if _, err := r.Next(ctx); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	append(6)
	if took := time.Since(begin); took < stall {
		t.Errorf("the reader was waited for for %v", took)
	}
}
