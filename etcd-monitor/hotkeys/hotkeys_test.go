package hotkeys

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// clock is a clock whose time the test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Unix(1_700_000_000, 0)} }

func names(counts []Count) (out []string) {
	for _, c := range counts {
		out = append(out, c.Key)
	}
	return out
}

// TestZipf checks that under a skewed load the hottest keys are exposed. No key's count may exceed
// the real number of its reads.
func TestZipf(t *testing.T) {
	const top, reads = 50, 400_000
	c := newClock()
	k := NewKeys(Bounds{Top: top, Counters: 400, Now: c.Now})
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, 99_999)
	truth := map[string]uint64{}
	for i := range reads {
		key := fmt.Sprintf("/registry/%d", z.Uint64())
		truth[key]++
		k.Read([]byte(key))
		if i%1000 == 0 {
			c.now = c.now.Add(10 * time.Millisecond)
		}
	}
	order := make([]string, 0, len(truth))
	for key := range truth {
		order = append(order, key)
	}
	slices.SortFunc(order, func(a, b string) int { return int(truth[b]) - int(truth[a]) })
	got := k.Top()
	if len(got) != top {
		t.Fatalf("%d keys are exposed, want %d", len(got), top)
	}
	in := 0
	for _, c := range got {
		if c.Reads > truth[c.Key] {
			t.Errorf("%s: %d reads, but there were %d", c.Key, c.Reads, truth[c.Key])
		}
		if slices.Contains(order[:top], c.Key) {
			in++
		}
	}
	if in < top*9/10 {
		t.Errorf("%d of the %d hottest keys are exposed", in, top)
	}
	for _, key := range order[:10] {
		if i := slices.IndexFunc(got, func(c Count) bool {
			return c.Key == key
		}); i < 0 || float64(got[i].Reads) < .99*float64(truth[key]) {
			t.Errorf("%s is one of the ten hottest (%d reads), exposed is %v", key, truth[key], got)
		}
	}
}

// TestDecay checks that keys that are hot now replace keys that were hot before.
func TestDecay(t *testing.T) {
	c := newClock()
	k := NewKeys(Bounds{Top: 2, HalfLife: time.Second, Now: c.Now})
	for range 1_000_000 {
		k.Read([]byte("yesterday"))
	}
	c.now = c.now.Add(25 * time.Second) // 2^25 is more than a million, so the new reads outweigh the old ones
	k.Read([]byte("today"))
	if got := names(k.Top()); got[0] != "today" {
		t.Fatalf("hottest first: %v", got)
	}
	// After a long time without reads, the weights restart, and all numbers are finite.
	for range 5 {
		c.now = c.now.Add(600 * time.Second)
		k.Read([]byte("tomorrow"))
		for _, c := range k.coldest {
			if math.IsInf(c.score, 0) || math.IsNaN(c.score) {
				t.Fatalf("%s scores %v", c.name, c.score)
			}
		}
	}
	if got := k.Top(); got[0].Key != "tomorrow" || got[0].Reads != 5 {
		t.Fatalf("%v", got)
	}
}

// increase computes what Prometheus computes from the samples of a counter. It is the sum of all
// increases. If a value is lower than the previous one, the whole value counts as an increase.
func increase(samples []uint64) (sum uint64) {
	for i := 1; i < len(samples); i++ {
		if samples[i] >= samples[i-1] {
			sum += samples[i] - samples[i-1]
		} else {
			sum += samples[i]
		}
	}
	return sum
}

// TestRate makes keys come and go, leave the top, lose their counters and come back. Prometheus'
// increase of the exposed counters must never exceed the real number of reads.
func TestRate(t *testing.T) {
	c := newClock()
	k := NewKeys(Bounds{Top: 8, Counters: 32, HalfLife: time.Second, Now: c.Now})
	r := rand.New(rand.NewPCG(3, 4))
	truth := map[string]uint64{}
	series := map[string][]uint64{}
	for range 2000 {
		hot := r.IntN(100)
		for range 200 {
			key := fmt.Sprint("k", (hot+int(r.ExpFloat64()*6))%100)
			truth[key]++
			k.Read([]byte(key))
		}
		c.now = c.now.Add(300 * time.Millisecond)
		for _, c := range k.Top() {
			series[c.Key] = append(series[c.Key], c.Reads)
		}
	}
	if k.displaced == 0 {
		t.Fatal("no key lost its counter: the load shows nothing")
	}
	resets := 0
	for key, samples := range series {
		if inc := increase(samples); inc > truth[key] {
			t.Errorf("%s: the counter rose by %d, but there were %d reads", key, inc, truth[key])
		}
		for i := 1; i < len(samples); i++ {
			if samples[i] < samples[i-1] {
				resets++
			}
		}
	}
	if resets == 0 {
		t.Error("no key began again at zero: the load shows nothing")
	}
}

// TestComesBack checks that the count of a key continues if the key leaves the top and comes back
// before it loses its counter.
func TestComesBack(t *testing.T) {
	c := newClock()
	k := NewKeys(Bounds{Top: 1, Counters: 8, HalfLife: time.Second, Now: c.Now})
	read := func(key string, n int) {
		for range n {
			k.Read([]byte(key))
		}
		c.now = c.now.Add(10 * time.Second)
	}
	read("a", 10)
	k.Write([]byte("a"))
	if got := k.Top(); got[0] != (Count{"a", 10, 1}) {
		t.Fatalf("%v", got)
	}
	read("b", 10)
	if got := names(k.Top()); !slices.Equal(got, []string{"b", "a"}) {
		t.Fatalf("%v: a, which was exposed, stays while it is second", got)
	}
	read("c", 10)
	read("d", 10)
	if got := names(k.Top()); slices.Contains(got, "a") {
		t.Fatalf("%v: a is fourth", got)
	}
	read("a", 5)
	if got := k.Top(); got[0] != (Count{"a", 15, 1}) {
		t.Fatalf("%v: want a with 15 reads", got)
	}
}

// TestWritesOnly checks that a key that is only written gets no counter.
func TestWritesOnly(t *testing.T) {
	k := NewKeys(Bounds{})
	k.Write([]byte("w"))
	if got := k.Top(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

func TestExposition(t *testing.T) {
	m := NewMetrics(Bounds{Top: 4}, func() int64 { return 42 })
	for _, key := range []string{"plain", "\xff\x00binary", `back\slash`, "ü\n\"quoted\""} {
		m.Keys.Read([]byte(key))
	}
	m.Keys.Read(make([]byte, MaxKey+1))
	m.Keys.Write([]byte("plain"))
	m.Request("get", "")
	m.Request("put", "Unavailable")
	m.Hit()
	m.Miss("guard")
	m.Forwarded("not placed")
	m.Network("read", 40*time.Microsecond)
	m.Etcd("get", time.Millisecond)
	m.GuardWait(time.Millisecond)
	m.GuardedWrite("published")
	m.Forged()
	m.AcceptError()
	want := `
# HELP etcd_monitor_accept_errors_total Tries to accept a client's connection that failed for want of file descriptors or memory; they are repeated, a second apart at most.
# TYPE etcd_monitor_accept_errors_total counter
etcd_monitor_accept_errors_total 1
# HELP etcd_monitor_forged_slots_total Slots of placed keys that had what no gateway has written; each version once.
# TYPE etcd_monitor_forged_slots_total counter
etcd_monitor_forged_slots_total 1
# HELP etcd_monitor_key_reads_total Reads of a key, for the keys that are read most, since the key is counted.
# TYPE etcd_monitor_key_reads_total counter
etcd_monitor_key_reads_total{key="\\xff\\x00binary"} 1
etcd_monitor_key_reads_total{key="back\\\\slash"} 1
etcd_monitor_key_reads_total{key="plain"} 1
etcd_monitor_key_reads_total{key="ü\\x0a\"quoted\""} 1
# HELP etcd_monitor_keys_too_long_total Reads of keys that are too long to be counted.
# TYPE etcd_monitor_keys_too_long_total counter
etcd_monitor_keys_too_long_total 1
# HELP etcd_monitor_reads_total Gets of one key, by who answered: network; miss: the key is placed and etcd had to answer, with the reason; forwarded: the network was not asked, with the reason.
# TYPE etcd_monitor_reads_total counter
etcd_monitor_reads_total{answered="forwarded",reason="not placed"} 1
etcd_monitor_reads_total{answered="miss",reason="guard"} 1
etcd_monitor_reads_total{answered="network",reason=""} 1
# HELP etcd_monitor_request_errors_total Requests that ended with an error, by kind and gRPC code.
# TYPE etcd_monitor_request_errors_total counter
etcd_monitor_request_errors_total{code="Unavailable",kind="put"} 1
# HELP etcd_monitor_revision The newest revision of etcd that was seen in an answer.
# TYPE etcd_monitor_revision gauge
etcd_monitor_revision 42
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "etcd_monitor_key_reads_total", "etcd_monitor_keys_too_long_total", "etcd_monitor_reads_total",
		"etcd_monitor_request_errors_total", "etcd_monitor_revision", "etcd_monitor_forged_slots_total", "etcd_monitor_accept_errors_total"); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	back := map[string]bool{}
	for _, f := range families {
		if f.GetName() == "etcd_monitor_key_reads_total" {
			for _, m := range f.Metric {
				key, err := placement.ParsePrintable(m.Label[0].GetValue())
				if err != nil {
					t.Error(err)
				}
				back[key] = true
			}
		}
	}
	if !back["\xff\x00binary"] || !back[`back\slash`] || !back["ü\n\"quoted\""] {
		t.Errorf("labels read back as %q", slices.Collect(maps.Keys(back)))
	}
}

func TestConcurrent(t *testing.T) {
	m := NewMetrics(Bounds{Top: 4, Counters: 16}, nil)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				m.Keys.Read(fmt.Append(nil, "k", (i*i+g)%37))
				m.Keys.Write(fmt.Append(nil, "k", i%37))
				if i%100 == 0 {
					testutil.CollectAndCount(m)
				}
			}
		})
	}
	wg.Wait()
}

// TestMemory checks that the memory stays within its limit, for a million keys and for keys of
// maximum length.
func TestMemory(t *testing.T) {
	const limit = 32 << 20
	m := NewMetrics(Bounds{}, nil)
	for _, load := range []struct{ keys, bytes int }{{1000, 32}, {1_000_000, 32}, {3 * DefaultCounters, MaxKey}} {
		key := []byte(strings.Repeat("x", load.bytes))
		for i := range load.keys {
			binary.BigEndian.PutUint64(key, uint64(i))
			m.Keys.Read(key)
		}
		testutil.CollectAndCount(m)
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		t.Logf("heap in use: %.1f MiB after %d keys of %d bytes", float64(s.HeapInuse)/(1<<20), load.keys, load.bytes)
		if s.HeapInuse > limit {
			t.Errorf("%d bytes are in use, want %d at most", s.HeapInuse, limit)
		}
	}
	runtime.KeepAlive(m)
}

func BenchmarkRead(b *testing.B) {
	for _, keys := range []int{100, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			k := NewKeys(Bounds{})
			names := make([][]byte, min(keys, 100_000))
			for i := range names {
				names[i] = fmt.Append(nil, "/registry/pods/default/pod-", i)
			}
			for i := 0; b.Loop(); i++ {
				k.Read(names[i%len(names)])
			}
		})
	}
}

// BenchmarkScrape measures a scrape by Prometheus with the maximum number of keys.
func BenchmarkScrape(b *testing.B) {
	m := NewMetrics(Bounds{}, nil)
	for i := range DefaultCounters {
		for range 1 + DefaultCounters/(i+1) {
			m.Keys.Read(fmt.Appendf(nil, "/registry/pods/default/pod-%d", i))
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
