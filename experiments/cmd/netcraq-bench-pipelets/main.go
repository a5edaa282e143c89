// Command netcraq-bench-pipelets measures how long a record takes from a source to its clients,
// which compute different results from it. The clients either poll the source or are pipelets (make
// bench-pipelets).
//
// Source and destination are separate etcd processes. The source is behind a proxy that counts
// bytes. A record is a JSON object with the time of its put. Each row that a client writes contains
// the times of all records in it, so that every record is counted. One process, with one clock,
// puts records and watches the destination.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

// Result is the result of a run.
type Result struct {
	Way      string `json:"way"`
	Clients  int    `json:"clients"`
	Records  int    `json:"records"`  // number of puts
	Arrivals int    `json:"arrivals"` // number of arrivals at all clients together
	Expected int    `json:"expected"` // number of arrivals that are expected
	// percentiles 1 to 100 of the time in milliseconds from the put to the watcher
	Millis    []float64          `json:"millis"`
	Bytes     uint64             `json:"bytes"`     // number of bytes read from the source
	Stored    uint64             `json:"stored"`    // total size in bytes of the keys and values that were put
	CPU       map[string]float64 `json:"cpu"`       // processor time in seconds, by process, during the measurement
	Seconds   float64            `json:"seconds"`   // duration of the measurement in seconds
	Committed int                `json:"committed"` // number of keys written at the destination
	Busy      float64            `json:"busy"`      // utilization of the machine's processors, 0 to 1
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "etcd":
			serve(os.Args[2])
			return
		case "poll":
			fail(poll(os.Args[2:]))
			return
		}
	}
	way := flag.String("way", "merged", "poll, apart (pipelets without consolidation) or merged")
	every := flag.Duration("every", 100*time.Millisecond, "poll: from one look at the source to the next")
	clients := flag.Int("clients", 100, "number of clients")
	rate := flag.Float64("rate", 10, "records a second")
	size := flag.Int("size", 1024, "bytes of a record's random text")
	seconds := flag.Float64("seconds", 20, "length of the measurement")
	pipelets := flag.String("pipelets", "", "the command netcraq-pipelets")
	flag.Parse()
	r, err := measure(*way, *every, *clients, *rate, *size, *seconds, *pipelets)
	fail(err)
	fail(json.NewEncoder(os.Stdout).Encode(r))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-bench-pipelets:", err)
		os.Exit(1)
	}
}

// serve is the main function of an etcd process.
func serve(dir string) {
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: dir, LogLevel: "fatal"})
	fail(err)
	fmt.Println(s.Endpoint())
	select {}
}

func dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second})
}

// processes are the processes that a run has started.
type processes struct{ all []*exec.Cmd }

func (p *processes) start(name string, args ...string) (*exec.Cmd, error) {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.all = append(p.all, c)
	return c, nil
}

func (p *processes) end() {
	for _, c := range p.all {
		if c.Process != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
}

// etcd starts an etcd process.
func (p *processes) etcd(dir string) (*exec.Cmd, string, error) {
	c, _ := p.start(os.Args[0], "etcd", dir)
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := c.Start(); err != nil {
		return nil, "", err
	}
	line := make([]byte, 256)
	n, err := out.Read(line)
	return c, strings.TrimSpace(string(line[:n])), err
}

// proxy forwards connections to an address, and counts the bytes that come from that address.
func proxy(to string) (addr string, from *atomic.Uint64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	from = &atomic.Uint64{}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			pass := func(dst, src net.Conn, count *atomic.Uint64) {
				buf := make([]byte, 64<<10)
				for {
					n, err := src.Read(buf)
					if count != nil {
						count.Add(uint64(n))
					}
					if n > 0 {
						if _, err := dst.Write(buf[:n]); err != nil {
							break
						}
					}
					if err != nil {
						break
					}
				}
				dst.Close()
				src.Close()
			}
			go pass(a, b, from)
			go pass(b, a, nil)
		}
	}()
	return l.Addr().String(), from, nil
}

// record is the value of a put.
type record struct {
	T int64  `json:"t"` // time of the put in nanoseconds
	N int    `json:"n"`
	S string `json:"s"`
}

// left is a modulus. A client drops each record whose number modulo left equals the client's
// number.
const left = 100

// measure makes one run.
func measure(way string, every time.Duration, clients int, rate float64, size int, seconds float64,
	pipelets string) (*Result, error) {
	dir, err := os.MkdirTemp("", "bench-pipelets-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p := &processes{}
	defer p.end()
	source, from, err := p.etcd(filepath.Join(dir, "source"))
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	dest, to, err := p.etcd(filepath.Join(dir, "dest"))
	if err != nil {
		return nil, fmt.Errorf("the destination: %w", err)
	}
	addr, bytes, err := proxy(strings.TrimPrefix(from, "http://"))
	if err != nil {
		return nil, err
	}
	var worker *exec.Cmd
	if way == "poll" {
		worker, _ = p.start(os.Args[0], "poll", "http://"+addr, to, strconv.Itoa(clients), every.String())
	} else {
		file := filepath.Join(dir, "pipelets.yaml")
		if err := os.WriteFile(file, []byte(declared("http://"+addr, to, clients)), 0o600); err != nil {
			return nil, err
		}
		args := []string{"run", file}
		if way == "apart" {
			args = append(args, "--no-consolidation")
		}
		worker, _ = p.start(pipelets, args...)
		worker.Stderr = nil
	}
	if err := worker.Start(); err != nil {
		return nil, err
	}
	put, err := dial(from)
	if err != nil {
		return nil, err
	}
	defer put.Close()
	look, err := dial(to)
	if err != nil {
		return nil, err
	}
	defer look.Close()

	w := newWatcher(look)
	defer w.end()
	n := 0
	one := func() error {
		text, err := json.Marshal(record{time.Now().UnixNano(), n, random(size)})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = put.Put(ctx, fmt.Sprintf("load/%09d", n), string(text))
		n++
		return err
	}
	// Run until each client has received a record, and only then start the measurement.
	for begin := time.Now(); w.seen() < clients; time.Sleep(100 * time.Millisecond) {
		if err := one(); err != nil {
			return nil, err
		}
		if time.Since(begin) > 2*time.Minute {
			return nil, fmt.Errorf("%d of %d clients have got something after two minutes", w.seen(), clients)
		}
	}
	time.Sleep(2*time.Second + every)
	first := n
	w.from(first)
	bytes.Store(0)
	who := map[string]*exec.Cmd{"source": source, "destination": dest, "clients": worker}
	before, busy := cpu(who), machine()
	begin := time.Now()
	for end := begin.Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		if err := one(); err != nil {
			return nil, err
		}
		next := begin.Add(time.Duration(float64(n-first) / rate * float64(time.Second)))
		time.Sleep(time.Until(next))
	}
	expected := 0
	for i := first; i < n; i++ {
		for c := range clients {
			if i%left != c%left {
				expected++
			}
		}
	}
	for limit := time.Now().Add(time.Minute); w.arrived() < expected && time.Now().Before(limit); {
		time.Sleep(20 * time.Millisecond)
	}
	r := &Result{Way: way, Clients: clients, Records: n - first, Expected: expected, Bytes: bytes.Load(),
		CPU: map[string]float64{}, Seconds: time.Since(begin).Seconds()}
	if way == "poll" {
		r.Way = fmt.Sprintf("poll %v", every)
	}
	for name, t := range cpu(who) {
		r.CPU[name] = t - before[name]
	}
	now := machine()
	r.Busy = 1 - (now[1]-busy[1])/(now[0]-busy[0])
	text, _ := json.Marshal(record{time.Now().UnixNano(), n, random(size)})
	r.Stored = uint64(r.Records * (len("load/000000000") + len(text)))
	r.Millis, r.Arrivals, r.Committed = w.percentiles()
	return r, nil
}

func random(size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = 'a' + byte(rand.IntN(26))
	}
	return string(b)
}

// declared returns the pipelets' file, which has one pipelet for each client.
func declared(from, to string, clients int) string {
	var b strings.Builder
	for c := range clients {
		fmt.Fprintf(&b, `---
apiVersion: netcraq.io/v1alpha1
kind: Pipelet
metadata: {name: c%d}
spec:
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: c%d/}}]
  flow: |
    SELECT 'now' AS key, string_agg((value->>'n') || '@' || (value->>'t'), ' ' ORDER BY version) AS value
    FROM src WHERE (value->>'n')::INT %% %d <> %d HAVING count(*) > 0
  eoio: true
`, c, from, to, c, left, c%left)
	}
	return b.String()
}

// watcher records the arrivals at the destination.
type watcher struct {
	cancel context.CancelFunc

	mu        sync.Mutex
	clients   map[string]bool
	first     int
	latencies []float64 // latencies in milliseconds
	committed int
}

func newWatcher(c *clientv3.Client) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cancel: cancel, clients: map[string]bool{}, first: 1 << 62}
	ch := c.Watch(ctx, "c", clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		for r := range ch {
			now := time.Now().UnixNano()
			for _, e := range r.Events {
				w.take(string(e.Kv.Key), string(e.Kv.Value), now)
			}
		}
	}()
	return w
}

func (w *watcher) end() { w.cancel() }

func (w *watcher) take(key, value string, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients[key] = true
	counts := false
	for part := range strings.FieldsSeq(value) {
		n, t, _ := strings.Cut(part, "@")
		i, err1 := strconv.Atoi(n)
		at, err2 := strconv.ParseInt(t, 10, 64)
		if err1 == nil && err2 == nil && i >= w.first {
			w.latencies = append(w.latencies, float64(now-at)/1e6)
			counts = true
		}
	}
	if counts {
		w.committed++
	}
}

func (w *watcher) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.clients)
}

func (w *watcher) arrived() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.latencies)
}

func (w *watcher) from(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = n
}

func (w *watcher) percentiles() (all []float64, n, committed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.latencies)
	for p := 1; p <= 100 && len(w.latencies) > 0; p++ {
		all = append(all, w.latencies[max(0, len(w.latencies)*p/100-1)])
	}
	return all, len(w.latencies), w.committed
}

// cpu returns the processor time of processes, in seconds.
func cpu(who map[string]*exec.Cmd) map[string]float64 {
	out := map[string]float64{}
	for name, c := range who {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		if err != nil {
			continue
		}
		part := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		user, _ := strconv.ParseFloat(part[11], 64)
		system, _ := strconv.ParseFloat(part[12], 64)
		out[name] = (user + system) / 100
	}
	return out
}

// machine returns the total time of all processors, and their idle time, in ticks.
func machine() (out [2]float64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return out
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line)[1:] {
		v, _ := strconv.ParseFloat(f, 64)
		if i < 8 {
			out[0] += v
		}
		if i == 3 || i == 4 {
			out[1] += v
		}
	}
	return out
}

// poll runs the process of the polling clients. Each client reads the source, computes from the new
// records, and writes the result. The clients' polls are spread over the interval, like those of
// independent programs.
func poll(args []string) error {
	from, to := args[0], args[1]
	clients, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	every, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for c := range clients {
		source, err := dial(from)
		if err != nil {
			return err
		}
		dest, err := dial(to)
		if err != nil {
			return err
		}
		group.Go(func() {
			time.Sleep(time.Duration(rand.Int64N(int64(every))))
			revision := int64(1)
			for next := time.Now(); ; {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if err := look(ctx, source, dest, c, &revision); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				cancel()
				if next = next.Add(every); time.Until(next) < 0 {
					next = time.Now()
				}
				time.Sleep(time.Until(next))
			}
		})
	}
	group.Wait()
	return nil
}

// look makes one poll for a client.
func look(ctx context.Context, source, dest *clientv3.Client, c int, revision *int64) error {
	r, err := source.Get(ctx, "load/", clientv3.WithPrefix(), clientv3.WithMinModRev(*revision))
	if err != nil {
		return err
	}
	var made []string
	for _, kv := range r.Kvs {
		var v record
		if err := json.Unmarshal(kv.Value, &v); err != nil {
			return err
		}
		if v.N%left != c%left {
			made = append(made, fmt.Sprintf("%d@%d", v.N, v.T))
		}
	}
	if len(made) > 0 {
		if _, err := dest.Put(ctx, fmt.Sprintf("c%d/now", c), strings.Join(made, " ")); err != nil {
			return err
		}
	}
	*revision = r.Header.Revision + 1
	return nil
}
