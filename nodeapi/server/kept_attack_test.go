package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/streams/broker"
)

// keeper is a caller that keeps descriptors open after it has deleted their objects or canceled the
// requests.
type keeper struct {
	*hostile
	registry *prometheus.Registry
	id       int
}

func newKeeper(t *testing.T, limits broker.Limits) *keeper {
	r := prometheus.NewRegistry()
	_, path := start(t, Config{Streams: &broker.Options{Limits: limits}, Metrics: r})
	return &keeper{newHostile(t, path), r, 0}
}

// metric returns the value of a gauge that has no labels.
func (k *keeper) metric(name string) int64 {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return int64(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	k.t.Fatalf("there is no metric %s", name)
	return 0
}

// try sends a request, and reports whether it succeeded. It returns false if the request was
// refused because of a memory limit.
func (k *keeper) try(text string) bool {
	k.t.Helper()
	k.id++
	got := k.ask(fmt.Sprintf(`{"id":%d,%s}`, k.id, text), fmt.Sprintf(`"id":%d`, k.id))
	if !strings.Contains(got, `"error"`) {
		return true
	}
	if !strings.Contains(got, `"quota_exceeded"`) {
		k.t.Fatalf("%s: %s", text, got)
	}
	return false
}

// cancel cancels the caller's last request.
func (k *keeper) cancel() {
	k.t.Helper()
	k.send(fmt.Sprintf(`{"id":%d,"func":"cancel","data":{"id":%d}}`, k.id+1, k.id))
	k.receive()
	k.receive()
	k.id++
}

// kernel returns the total size of the files whose descriptors the caller keeps open.
func (k *keeper) kernel() (n int64) {
	k.t.Helper()
	seen := map[uint64]bool{}
	for _, fd := range k.fds {
		var s unix.Stat_t
		if err := unix.Fstat(fd, &s); err != nil {
			k.t.Fatal(err)
		}
		if !seen[s.Ino] {
			seen[s.Ino] = true
			n += s.Blocks * 512
		}
	}
	return n
}

// within checks that the total size of the kept files is within the limit, and that the metric has
// the same value.
func (k *keeper) within(limit int64) {
	k.t.Helper()
	kernel, metric := k.kernel(), k.metric("netcraq_streams_memory_bytes")
	if kernel > limit || metric < kernel || metric > limit {
		k.t.Fatalf("callers keep %d bytes and the metric says %d, of at most %d", kernel, metric, limit)
	}
}

// letGo closes all descriptors, and waits until no released memory is counted.
func (k *keeper) letGo() {
	k.t.Helper()
	for _, fd := range k.fds {
		unix.Close(fd)
	}
	k.fds = nil
	poll.Until(k.t, patience, "what is kept no more to be given back", func() bool {
		return k.metric("netcraq_streams_memory_bytes")+k.metric("netcraq_streams_kept_bytes") == 0
	})
}

// TestKeptFiles checks that a file counts as memory until the kernel has freed it. This must hold
// for sealed files and drafts, whichever descriptor the caller keeps.
func TestKeptFiles(t *testing.T) {
	const limit = 64 << 20
	for _, c := range []struct {
		name string
		data string
		seal bool
		keep func(fds []int) (kept, gone int)
	}{
		{"draft", `{"bytes":16777216}`, false, nil},
		{"draft's writer", `{"bytes":16777216}`, false, func(fds []int) (int, int) { return fds[0], fds[1] }},
		{"draft's reader", `{"bytes":16777216}`, false, func(fds []int) (int, int) { return fds[1], fds[0] }},
		{"sealed", `{"bytes":16777216}`, true, func(fds []int) (int, int) { return fds[0], fds[1] }},
		{"rewritable", `{"bytes":16777216,"rewritable":true}`, true, func(fds []int) (int, int) { return fds[0], fds[1] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKeeper(t, broker.Limits{Bytes: limit})
			rounds, made := 128, 0
			for range rounds {
				k.id++
				k.send(fmt.Sprintf(`{"id":%d,"func":"makeFile","data":%s}`, k.id, c.data))
				got := k.receive()
				if strings.Contains(got, `"quota_exceeded"`) {
					continue
				}
				made++
				make := k.id
				if c.seal {
					name := strings.Split(strings.Split(got, `"file":"`)[1], `"`)[0]
					k.id++
					k.ask(fmt.Sprintf(`{"id":%d,"func":"sealFile","data":{"file":"%s"}}`, k.id, name), `"data":{}`)
				}
				k.id++
				k.send(fmt.Sprintf(`{"id":%d,"func":"cancel","data":{"id":%d}}`, k.id, make))
				k.receive()
				k.receive()
				if n := len(k.fds); c.keep != nil {
					kept, gone := c.keep(k.fds[n-2:])
					unix.Close(gone)
					k.fds = append(k.fds[:n-2], kept)
				}
				k.within(limit)
			}
			if made != 4 || k.metric("netcraq_streams_kept_bytes") != limit {
				t.Errorf("%d files were made, want 4; %d bytes are kept", made, k.metric("netcraq_streams_kept_bytes"))
			}
			k.letGo()
			if !k.try(`"func":"makeFile","data":{"bytes":67108864}`) {
				t.Error("what was given back is not there")
			}
		})
	}
}

// TestKeptMappings checks that a mapping keeps memory allocated, as a descriptor does.
func TestKeptMappings(t *testing.T) {
	k := newKeeper(t, broker.Limits{Bytes: 1 << 20})
	if !k.try(`"func":"makeFile","data":{"bytes":1048576}`) {
		t.Fatal("refused")
	}
	b, err := unix.Mmap(k.fds[0], 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range k.fds {
		unix.Close(fd)
	}
	k.fds = nil
	k.cancel()
	if k.try(`"func":"makeFile","data":{"bytes":4096}`) {
		t.Error("the limit is passed while a file is mapped that counts no more")
	}
	_ = unix.Munmap(b)
	poll.Until(t, patience, "the file to be given back", func() bool {
		return k.try(`"func":"makeFile","data":{"bytes":4096}`)
	})
}

// TestKeptStreams checks that the memory of a deleted stream counts while it is mapped. Memory that
// readers keep after their right was revoked must also count.
func TestKeptStreams(t *testing.T) {
	const limit = 64 << 20
	k := newKeeper(t, broker.Limits{Bytes: limit})
	made := 0
	for range 20 {
		if !k.try(`"func":"openStream","data":{"stream":"s","config":{"volatile":true,"objects":240,"objectBytes":65536}}`) {
			continue
		}
		made++
		if !k.try(`"func":"subscribe","data":{"stream":"s"}`) {
			t.Fatal("refused")
		}
		k.id++
		k.send(fmt.Sprintf(`{"id":%d,"func":"deleteStream","data":{"stream":"s"}}`, k.id))
		k.receive()
		k.receive() // receives the answer to the subscription
		k.within(limit)
	}
	if made != 4 {
		t.Errorf("%d streams of 15 MiB were made, want 4", made)
	}
	k.letGo()
}

// TestKeptCount checks that the number of kept files and segments is limited, because the server
// keeps a descriptor for each.
func TestKeptCount(t *testing.T) {
	k := newKeeper(t, broker.Limits{Kept: 8})
	if !k.try(`"func":"openStream","data":{"stream":"s","config":{"volatile":true,"objects":4,"objectBytes":1024}}`) {
		t.Fatal("refused")
	}
	taken := 0
	for range 20 {
		if k.try(`"func":"subscribe","data":{"stream":"s"}`) {
			taken++
			k.cancel()
		}
	}
	if taken != 8 {
		t.Errorf("a caller keeps the pages of %d subscriptions, want 8", taken)
	}
	if k.try(`"func":"makeFile","data":{"bytes":1}`) {
		t.Error("a file is made where too much is kept")
	}
	for _, fd := range k.fds {
		unix.Close(fd)
	}
	k.fds = nil
	poll.Until(t, patience, "there to be room again", func() bool {
		return k.try(`"func":"makeFile","data":{"bytes":1}`)
	})
}
