package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// memory is an in-memory store that can return wrong values.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	spoil  func(key string, value []byte) []byte
	fail   error
}

func (m *memory) Open(context.Context, int) (Store, error) { return m, nil }
func (m *memory) Close() error                             { return nil }

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	v := m.values[key]
	if m.spoil != nil {
		v = m.spoil(key, append([]byte{}, v...))
	}
	return v, nil
}

func (m *memory) Put(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	return nil
}

var testConfig = Config{Outstanding: 4, Gets: 3, Puts: 1, Keys: 10, ValueBytes: 40,
	Duration: 50 * time.Millisecond, Timeout: time.Second, Seed: 1}

func TestRunCountsAndVerifies(t *testing.T) {
	m := &memory{values: map[string][]byte{}}
	if err := Fill(t.Context(), m, testConfig); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), m, testConfig)
	if err != nil {
		t.Fatal(err)
	}
	if r.Get.Queries == 0 || r.Put.Queries == 0 || r.Get.Lost+r.Get.Failed+r.Put.Lost+r.Put.Failed > 0 {
		t.Errorf("a healthy store: %+v", r)
	}
	if r.Get.Latency.TotalCount() != int64(r.Get.Queries) {
		t.Errorf("%d latencies of %d gets", r.Get.Latency.TotalCount(), r.Get.Queries)
	}
}

func TestWrongValuesEndTheRun(t *testing.T) {
	for name, spoil := range map[string]func(string, []byte) []byte{
		"another key's": func(_ string, v []byte) []byte { v[3] ^= 1; return v },
		"cut short":     func(_ string, v []byte) []byte { return v[:39] },
		"torn":          func(_ string, v []byte) []byte { v[39]++; return v },
		"none":          func(string, []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{values: map[string][]byte{}, spoil: spoil}
			if err := Fill(t.Context(), m, testConfig); err != nil {
				t.Fatal(err)
			}
			if _, err := Run(t.Context(), m, testConfig); !errors.Is(err, ErrWrongValue) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestFailuresAreCounted(t *testing.T) {
	m := &memory{values: map[string][]byte{}, fail: errors.New("out of order")}
	cfg := testConfig
	cfg.Puts = 0
	r, err := Run(t.Context(), m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Get.Failed == 0 || r.Get.Failed != r.Get.Queries || r.Rate() != 0 || r.FirstError != "out of order" {
		t.Errorf("a failing store: %+v", r)
	}
	m.fail = context.DeadlineExceeded
	if r, err = Run(t.Context(), m, cfg); err != nil || r.Get.Lost == 0 || r.Get.Lost != r.Get.Queries {
		t.Errorf("a silent store: %+v, %v", r, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no worker": func(c *Config) {
			c.Outstanding = 0
		}, "no mix": func(c *Config) { c.Gets, c.Puts = 0, 0 }, "no key": func(c *Config) { c.Keys = 0 },
		"short value": func(c *Config) { c.ValueBytes = minValue - 1 }, "no time": func(c *Config) { c.Duration = 0 },
	} {
		cfg := testConfig
		change(&cfg)
		if _, err := Run(t.Context(), &memory{}, cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// server starts a program on a free port of the loopback interface and waits until it accepts
// connections.
func server(t *testing.T, program string, arguments func(port string) []string) (addr string) {
	t.Helper()
	bin, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	_, port, err := net.SplitHostPort(testport.Free(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, arguments(port)...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr = net.JoinHostPort("127.0.0.1", port)
	poll.Nil(t, 10*time.Second, program+" listens at "+addr, func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return addr
}

func TestRealServers(t *testing.T) {
	cfg := testConfig
	cfg.Duration, cfg.Keys, cfg.ValueBytes = 200*time.Millisecond, 20, 1024
	cfg.Zipf = func(r *rand.Rand) func() int { return func() int { return min(r.IntN(20), r.IntN(20)) } }
	for name, open := range map[string]func(t *testing.T) Peer{
		"memcached": func(t *testing.T) Peer {
			return NewMemcached(server(t, "memcached", func(p string) []string {
				return []string{"-u", "root", "-l", "127.0.0.1", "-p", p, "-U", p}
			}))
		},
		"redis": func(t *testing.T) Peer {
			r, err := NewRedis(t.Context(), server(t, "redis-server", func(p string) []string {
				return []string{"--bind", "127.0.0.1", "--port", p, "--save", ""}
			}), 4)
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		"etcd": func(t *testing.T) Peer {
			dir := t.TempDir()
			e, err := NewEtcd(t.Context(), []string{server(t, "etcd", func(p string) []string {
				url := "http://127.0.0.1:" + p
				return []string{"--data-dir", dir, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0"}
			})}, "")
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			defer p.Close()
			if err := Fill(t.Context(), p, cfg); err != nil {
				t.Fatal(err)
			}
			r, err := Run(t.Context(), p, cfg)
			few := func() bool { return r.Get.Queries < 10 || r.Put.Queries < 10 }
			for longer := cfg; err == nil && few() && longer.Duration < 10*time.Second; { // a busy machine
				longer.Duration *= 4
				r, err = Run(t.Context(), p, longer)
			}
			if err != nil {
				t.Fatal(err)
			}
			if few() || r.Get.Failed+r.Put.Failed+r.Get.Lost+r.Put.Lost > 0 {
				t.Errorf("%d gets, %d puts, first error %q", r.Get.Queries, r.Put.Queries, r.FirstError)
			}
			t.Logf("%.0f a second, get p50 %.0f us", r.Rate(), float64(r.Get.Latency.ValueAtQuantile(50))/1000)
		})
	}
}

// slow is a store with a delay for each query, and with a single long delay.
type slow struct {
	*memory
	took time.Duration
	once sync.Once
	long time.Duration
}

func (s *slow) Open(context.Context, int) (Store, error) { return s, nil }

func (s *slow) Get(ctx context.Context, key string) ([]byte, error) {
	time.Sleep(s.took)
	s.once.Do(func() { time.Sleep(s.long) })
	return s.memory.Get(ctx, key)
}

func TestARateIsKept(t *testing.T) {
	m := &memory{values: map[string][]byte{}}
	cfg := testConfig
	cfg.Gets, cfg.Puts, cfg.Rate, cfg.Duration = 1, 0, 200, 500*time.Millisecond
	if err := Fill(t.Context(), m, cfg); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Get.Queries < 50 || r.Get.Queries > 101 {
		t.Errorf("%d queries in half a second at a rate of 200", r.Get.Queries)
	}
}

func TestQueriesThatAStallKeepsWaitingCountAsLong(t *testing.T) {
	m := &slow{memory: &memory{values: map[string][]byte{}}, long: 200 * time.Millisecond}
	cfg := testConfig
	cfg.Gets, cfg.Puts, cfg.Rate, cfg.Duration, cfg.Outstanding = 1, 0, 100, 500*time.Millisecond, 1
	if err := Fill(t.Context(), m.memory, cfg); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The stalled query waits for 200 ms. The queries that become due meanwhile wait for 190, 180,
	// ... ms.
	long := 0
	for _, bar := range r.Get.Latency.Distribution() {
		if bar.From > (50 * time.Millisecond).Nanoseconds() {
			long += int(bar.Count)
		}
	}
	if long < 10 {
		t.Errorf("%d queries took more than 50 ms, though one stalled for 200 ms at one each 10 ms", long)
	}
}

func TestANegativeRateIsRefused(t *testing.T) {
	cfg := testConfig
	cfg.Rate = -1
	if _, err := Run(t.Context(), &memory{values: map[string][]byte{}}, cfg); err == nil {
		t.Error("a rate of -1 is accepted")
	}
}
