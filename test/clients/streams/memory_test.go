package streams_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// served is a server in its own process, so that the test can measure the server's memory
// separately.
type served struct {
	t      *testing.T
	dir    string
	socket string
	server *process
	client *node.Client
	http   http.Client
}

func newServed(t *testing.T) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{t: t, dir: dir, socket: filepath.Join(dir, "s"), server: startServer(t, dir)}
	t.Cleanup(s.server.kill)
	s.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "metrics"))
	}}
	t.Cleanup(s.http.CloseIdleConnections)
	c, err := node.Connect(t.Context(), node.Config{Socket: s.socket, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(canceled()) })
	s.client = c
	return s
}

// metric returns the value of one of the server's metrics.
func (s *served) metric(name string) int {
	s.t.Helper()
	answer, err := s.http.Get("http://server/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return int(v)
		}
	}
	s.t.Fatalf("the server has no %s", name)
	return 0
}

// kernel reads a file of the server in /proc. It returns the numbers of bytes in the file, by the
// names of the lines.
func (s *served) kernel(file string) map[string]int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.server.proc(), file))
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			kb, _ := strconv.Atoi(f[1])
			out[strings.TrimSuffix(f[0], ":")] = kb << 10
		}
	}
	return out
}

// append appends n records of the given size to a partition of the stream s. Each record begins
// with its offset. append returns the number of records that it has appended before ctx ended.
func (s *served) append(ctx context.Context, partition int, next *uint64, n, size int) (appended int) {
	for appended < n && ctx.Err() == nil {
		d := to("s")
		d.Partition = partition
		for i := range min(n-appended, 10) {
			data := make([]byte, size)
			binary.LittleEndian.PutUint64(data, *next+uint64(i))
			d.Records = append(d.Records, nodeapi.RecordData{ValueBase64: data})
		}
		a, err := s.client.Append(ctx, d)
		if err != nil {
			if ctx.Err() == nil && node.CodeOf(err) != nodeapi.CodeTimeout {
				s.t.Error(err)
			}
			return appended
		}
		appended += a.Appended
		*next += uint64(a.Appended)
	}
	return appended
}

// TestMemoryOfACrowd checks that each consumer adds one cursor page to the memory that the server
// reports for streams, and one page to what the server shares. The server's private memory grows
// only by what connections need. When the consumers have disconnected, all three amounts are as
// before.
func TestMemoryOfACrowd(t *testing.T) {
	const (
		crowd       = 50
		partitions  = 2
		objects     = 16
		objectBytes = 64 << 10
	)
	// each bounds the server's private memory for one connection, including buffers and garbage.
	// slack is an additional allowance.
	each, slack := 128<<10, 8<<20
	if racedetector.Enabled { // the race detector multiplies memory use
		each, slack = 8*each, 8*slack
	}
	s := newServed(t)
	ctx := soon(t)
	config := &nodeapi.StreamConfig{Partitions: partitions, ObjectBytes: objectBytes, Objects: objects,
		StallMillis: 100,
		KeepMillis:  100}
	if _, err := s.client.OpenStream(ctx, "s", config); err != nil {
		t.Fatal(err)
	}
	segments := partitions * stream.SegmentBytes(objects, objectBytes)
	var next [partitions]uint64
	for n := range partitions { // This fills the whole ring, so that all of its memory is in use.
		s.append(ctx, n, &next[n], objects*60+60, 1000)
	}
	said := s.metric("netcraq_streams_memory_bytes")
	// The segments count twice, because the stored records are also in memory.
	if said != 2*segments {
		t.Errorf("streams take %d bytes, the server says, not %d", said, 2*segments)
	}
	before, beforePSS := s.kernel("status"), s.kernel("smaps_rollup")["Pss"]
	if before["RssShmem"] > segments+1<<20 {
		t.Errorf("with no consumer %d bytes are shared, for segments of %d", before["RssShmem"], segments)
	}

	over, end := context.WithCancel(ctx)
	defer end()
	var producers, consumers sync.WaitGroup
	for n := range partitions {
		producers.Go(func() {
			for over.Err() == nil {
				s.append(over, n, &next[n], 100, 1000)
			}
		})
	}
	begin := time.Now()
	for i := range crowd {
		consumers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for first := true; first || time.Since(begin) < time.Second; first = false {
				r, err := streams.Open(over, streams.Config{Socket: s.socket, Stream: "s", Skip: random.IntN(4) == 0})
				if err != nil {
					t.Error(err)
					return
				}
				for range random.IntN(10) {
					if _, err := r.Next(over); err != nil && !errors.Is(err, streams.ErrOverrun) {
						t.Error(err)
						break
					}
				}
				if i%10 == 0 {
					// This consumer holds the records that it has read, and does not read on.
					time.Sleep(200 * time.Millisecond)
				}
				r.Close()
			}
		})
	}
	gone := make(chan struct{})
	go func() { consumers.Wait(); close(gone) }()
	var most struct{ subscriptions, shared, own, pss int }
	for busy := true; busy; {
		// The metric also counts the pages of consumers that have just ended.
		if now := s.metric("netcraq_streams_memory_bytes"); now < said || now > said+10*crowd*stream.CursorBytes {
			t.Errorf("streams take %d bytes, the server says, and took %d", now, said)
			break
		}
		now := s.kernel("status")
		most.subscriptions = max(most.subscriptions, s.metric("netcraq_streams_subscriptions"))
		most.shared = max(most.shared, now["RssShmem"])
		most.own = max(most.own, now["RssAnon"])
		most.pss = max(most.pss, s.kernel("smaps_rollup")["Pss"])
		select {
		case <-gone:
			busy = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	<-gone
	end()
	producers.Wait()
	t.Logf("%d subscriptions at a time; shared %d KiB, before %d; own %d KiB, before %d; proportional %d KiB, before %d",
		most.subscriptions, most.shared>>10, before["RssShmem"]>>10, most.own>>10, before["RssAnon"]>>10,
		most.pss>>10, beforePSS>>10)
	// Subscriptions that are just ending are also counted.
	if most.subscriptions < crowd/5 || most.subscriptions > 2*crowd {
		t.Errorf("there were %d subscriptions at a time", most.subscriptions)
	}
	if bound := segments + 2*crowd*stream.CursorBytes + 1<<20; most.shared > bound {
		t.Errorf("%d bytes were shared, of %d", most.shared, bound)
	}
	if bound := before["RssAnon"] + crowd*each + slack; most.own > bound {
		t.Errorf("the server had %d bytes of its own, of %d", most.own, bound)
	}
	if bound := beforePSS + crowd*each + slack; most.pss > bound {
		t.Errorf("the server's part of the memory was %d bytes, of %d", most.pss, bound)
	}
	poll.Until(t, patience, "the memory to be what it was", func() bool {
		return s.metric("netcraq_streams_subscriptions") == 0 && s.metric("netcraq_streams_memory_bytes") == said &&
			s.kernel("status")["RssShmem"] <= before["RssShmem"]
	}, func() string { return fmt.Sprint(s.kernel("status")) })
}

// count reads partition 0 of the stream s. It writes a line for each batch: the first record's
// offset, the offset after the last record, and the number of records missed before the batch.
func count(socket, path string) error {
	go exitWithStdin()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	r, err := streams.Open(context.Background(), streams.Config{Socket: socket, Stream: "s", Partitions: []int{0}})
	if err != nil {
		return err
	}
	for {
		b, err := r.Next(context.Background())
		if errors.Is(err, streams.ErrOverrun) {
			continue
		}
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%d %d %d\n", b.Offset, b.Next, b.Missed)
		for offset, record := range b.Records() {
			if number := binary.LittleEndian.Uint64(record.Data); number != offset {
				// This line is an error, unless the record was overwritten.
				line = fmt.Sprintf("record %d is %d\n", offset, number)
			}
		}
		if err := b.Release(); errors.Is(err, streams.ErrOverrun) {
			continue
		}
		if _, err := f.WriteString(line); err != nil {
			return err
		}
	}
}

// counted reads the file of a counting consumer. It returns the next offset, and the number of
// records that the consumer missed. Between batches and missed records there must be no gap.
func counted(t *testing.T, path string) (next, missed uint64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var first, behind, gone uint64
		if _, err := fmt.Sscanf(line, "%d %d %d\n", &first, &behind, &gone); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if first != next+gone {
			t.Fatalf("behind %d comes %d, and %d were missed", next, first, gone)
		}
		next, missed = behind, missed+gone
	}
	return next, missed
}

// TestStopped stops consumers (SIGSTOP) while they have memory mapped. Depending on the stream's
// configuration, the producer waits for a stopped consumer forever, not at all, or once for
// StallMillis. No other process waits, and no other memory grows. When the consumers continue, they
// learn what they have missed.
func TestStopped(t *testing.T) {
	const (
		stopped = 3
		objects = 8
		// number of records in the ring; an object of 1 KiB holds ten records of 64 bytes
		ring   = objects * 10
		rounds = 12
		stall  = time.Second
	)
	for _, c := range []struct {
		name  string
		slow  string
		stall time.Duration
	}{{"waits for good", nodeapi.SlowWait, time.Hour}, {"skips", nodeapi.SlowSkip, stall}, {"waits once", nodeapi.SlowWait, stall}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServed(t)
			ctx := soon(t)
			config := &nodeapi.StreamConfig{Partitions: 2, ObjectBytes: 1024, Objects: objects, Slow: c.slow,
				StallMillis: int(c.stall.Milliseconds())}
			if _, err := s.client.OpenStream(ctx, "s", config); err != nil {
				t.Fatal(err)
			}
			var counters []*process
			var paths []string
			for i := range stopped {
				path := filepath.Join(s.dir, fmt.Sprint("counter", i))
				p := &process{t: t, role: "counter", args: []string{s.socket, path}}
				p.start()
				t.Cleanup(p.kill)
				counters, paths = append(counters, p), append(paths, path)
			}
			poll.Until(t, patience, "the consumers to be there", func() bool {
				return s.metric("netcraq_streams_subscriptions") == stopped
			})
			var next [2]uint64
			s.append(ctx, 0, &next[0], 5, 64)
			poll.Until(t, patience, "the consumers to have read", func() bool {
				for _, path := range paths {
					if at, _ := counted(t, path); at != next[0] {
						return false
					}
				}
				return true
			})
			for _, p := range counters {
				_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			}
			said, waits := s.metric("netcraq_streams_memory_bytes"), s.metric("netcraq_streams_waits_total")

			// A stopped consumer affects neither partition 1 nor another reader of partition 0.
			live, err := streams.Open(ctx, streams.Config{Socket: s.socket, Stream: "s", Offsets: []uint64{0, 0},
				Partitions: []int{0, 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer live.Close()
			var reading sync.WaitGroup
			var at [2]uint64
			over, end := context.WithCancel(ctx)
			defer end()
			reading.Go(func() {
				for {
					b, err := live.Next(over)
					if over.Err() != nil {
						return
					}
					if err != nil && !errors.Is(err, streams.ErrOverrun) {
						t.Error(err)
						return
					}
					if err == nil {
						if c.slow == nodeapi.SlowWait && (b.Missed > 0 || b.Offset != at[b.Partition]) {
							t.Errorf("behind %d comes %d, and %d were missed", at[b.Partition], b.Offset, b.Missed)
						}
						at[b.Partition] = b.Next
					}
				}
			})
			if n := s.append(ctx, 1, &next[1], rounds*ring, 64); n != rounds*ring {
				t.Errorf("of the partition of nobody who is stopped %d records were appended", n)
			}
			patient := ctx
			if c.stall == time.Hour {
				var cancel context.CancelFunc
				patient, cancel = context.WithTimeout(ctx, stall)
				defer cancel()
			}
			begin := time.Now()
			n := s.append(patient, 0, &next[0], rounds*ring, 64)
			took := time.Since(begin)
			waited := s.metric("netcraq_streams_waits_total") - waits
			moved := s.metric("netcraq_streams_moved_on_total")
			t.Logf("%d records were appended in %v; the producer slept %d times, %d were moved on", n, took, waited, moved)
			switch {
			case c.stall == time.Hour && (n > ring || n < ring/2 || moved != 0):
				t.Errorf("%d records were appended for consumers that are waited for, and %d were moved on", n, moved)
			case c.stall != time.Hour && n != rounds*ring:
				t.Errorf("%d records were appended", n)
			case c.slow == nodeapi.SlowSkip && waited != 0:
				t.Errorf("the producer slept %d times", waited)
			// The producer waits for all stopped consumers at the same time. It waits only once,
			// and not in each round.
			case c.slow == nodeapi.SlowWait && c.stall == stall && (took < stall || took > rounds/2*stall):
				t.Errorf("the producer was held up for %v by consumers that are waited for for %v", took, stall)
			}
			// The memory also has the cursor page of `live`.
			if now := s.metric("netcraq_streams_memory_bytes"); now != said+stream.CursorBytes {
				t.Errorf("streams take %d bytes, and took %d", now, said)
			}
			for _, p := range counters {
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
			}
			rest := context.WithoutCancel(ctx)
			s.append(rest, 0, &next[0], rounds*ring-n, 64)
			poll.Until(t, patience, "the consumers to have caught up", func() bool {
				// A reader learns of missed records only with its next batch.
				s.append(rest, 0, &next[0], 1, 64)
				for _, path := range paths {
					if at, _ := counted(t, path); at+ring < next[0] {
						return false
					}
				}
				return true
			})
			for _, path := range paths {
				if _, missed := counted(t, path); (missed != 0) == (c.stall == time.Hour) {
					t.Errorf("%d records were missed", missed)
				}
			}
			end()
			reading.Wait()
		})
	}
}
