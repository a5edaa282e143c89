package streams

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/poll"
)

// TestMeasure measures push beside pull where $NETCRAQ_STREAMS_MEASURE is set, and prints tables.
// The server has a process of its own; producer and consumers are this one.
func TestMeasure(t *testing.T) {
	if os.Getenv("NETCRAQ_STREAMS_MEASURE") == "" {
		t.Skip("it measures, and takes long: set NETCRAQ_STREAMS_MEASURE")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	server := &process{t: t, role: "server", args: []string{dir}}
	server.start()
	defer server.kill()
	var c *node.Client
	poll.Until(t, patience, "the server to answer", func() (ok bool) {
		var err error
		c, err = node.Connect(t.Context(), node.Config{Socket: socket, Wait: time.Second})
		return err == nil
	})
	defer func() { _ = c.Close(canceled()) }()
	t.Logf("%d CPUs; records of 100 bytes; objects of 64 KiB, 64 of them", runtime.NumCPU())
	n := 0
	fresh := func() string {
		n++
		name := "s" + strconv.Itoa(n)
		if _, err := c.OpenStream(soon(t), name, &api.StreamConfig{}); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text := strings.Repeat("x", 100)
	for _, consumers := range []int{1, 2, 4} {
		for _, pull := range []bool{false, true} {
			name := fresh()
			r := throughput(t, c, socket, name, server.cmd.Process.Pid, consumers, pull, text)
			t.Logf("%d consumers, pull %-5v: %7.0f appended a second, %8.0f read; CPUs: server %.2f, the others %.2f; %d missed",
				consumers, pull, r.appended, r.read, r.server, r.others, r.missed)
			if err := c.DeleteStream(soon(t), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pull := range []bool{false, true} {
		times := latency(t, c, socket, fresh(), pull, text)
		t.Logf("from append to reader, 1,000 a second, pull %-5v: p50 %v, p99 %v", pull, times[len(times)/2],
			times[len(times)*99/100])
	}
}

type rates struct {
	appended, read, server, others float64
	missed                         uint64
}

// throughput is of one producer that appends 500 records at once.
func throughput(t *testing.T, c *node.Client, socket, name string, server, consumers int, pull bool,
	text string) rates {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var read, missed atomic.Uint64
	var wg sync.WaitGroup
	for i := range consumers {
		r, err := Open(ctx, Config{Socket: socket, Stream: name, Pull: pull, Consumer: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer r.Close()
			for {
				b, err := r.Next(ctx)
				if err != nil {
					return
				}
				missed.Add(b.Missed)
				sum := 0
				for _, record := range b.Records() {
					sum += int(record.Data[0])
				}
				if sum > 0 {
					read.Add(uint64(b.Len()))
				}
			}
		})
	}
	d := to(name, slices.Repeat([]string{text}, 500)...)
	const lasts = 3 * time.Second
	appended, begin, cpu, own := 0, time.Now(), cpuOf(t, server), cpuOf(t, os.Getpid())
	for time.Since(begin) < lasts {
		a, err := c.Append(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		appended += a.Appended
	}
	took := time.Since(begin).Seconds()
	r := rates{appended: float64(appended) / took, read: float64(read.Load()) / took, missed: missed.Load(),
		server: (cpuOf(t, server) - cpu).Seconds() / took, others: (cpuOf(t, os.Getpid()) - own).Seconds() / took}
	cancel()
	wg.Wait()
	return r
}

// latency is from when the server has appended a record to when it is read.
func latency(t *testing.T, c *node.Client, socket, name string, pull bool, text string) (times []time.Duration) {
	ctx := soon(t)
	r, err := Open(ctx, Config{Socket: socket, Stream: name, Pull: pull})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const many = 3000
	go func() {
		for range many {
			if _, err := c.Append(ctx, to(name, text)); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	for len(times) < many {
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range b.Records() {
			times = append(times, time.Since(record.Time))
		}
	}
	slices.Sort(times)
	return times
}

// cpuOf is the time that a process has had CPUs for.
func cpuOf(t *testing.T, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
