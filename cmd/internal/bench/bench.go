// Package bench is netcraqctl's load generator: a closed loop with a fixed number of outstanding
// queries. It uses the client's own state machine (client/calls), so it measures with the
// retransmission and session rules of real clients.
//
// Each worker is one goroutine with one socket. It sends all packets that the state machine wants
// to send in one system call (sendmmsg), and receives all packets that have arrived in another
// (recvmmsg). At high rates, the generator itself therefore costs well under a microsecond a query,
// in addition to the kernel's work. With one outstanding query (Serial) batching does not help, and
// Go's network poller costs more than the switch. Such a worker is an operating-system thread that
// blocks in recvfrom.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/internal/zipf"
)

// Config configures a run.
type Config struct {
	Client      calls.Config    // configuration of each worker's state machine; Seed is ignored
	Sessions    []calls.Session // sessions for writes, divided among the workers
	Workers     int             // number of sockets, each with its own goroutine
	Outstanding int             // maximum number of outstanding queries of all workers
	Serial      bool            // one query at a time for each worker, by blocking system calls
	Mix         Mix
	Keys        []wire.Key
	Zipf        float64 // Zipf exponent of the keys' popularity, in the order of Keys; 0 means uniform
	Eventual    bool
	ValueBytes  int           // size of values in puts and swaps
	Duration    time.Duration // duration of the run; 0 means until Count is reached
	Count       uint64        // number of queries; 0 means until Duration has passed
	Timeout     time.Duration // timeout of a query
	Seed        uint64
	Progress    func(elapsed time.Duration, queries uint64) // called once a second, if not nil
}

// Mix is the relative frequency of each operation.
type Mix struct{ Get, Put, CAS int }

// Op is an operation of the mix. Its value is an index, for example into Report.Ops.
type Op int

// The operations of the mix.
const (
	Get Op = iota
	Put
	CAS
	ops
)

func (o Op) String() string { return [...]string{"get", "put", "cas"}[o] }

// Report is the result of a run.
type Report struct {
	Elapsed time.Duration
	// Workers and Outstanding are the values that the run used. They may be lower than in Config,
	// because a run has at most as many workers as queries, and with Serial each worker has one
	// query.
	Workers, Outstanding int
	Ops                  [ops]OpReport
	All                  *hdrhistogram.Histogram // latencies of all answered queries, nanoseconds
	Stats                calls.Stats
}

// OpReport counts the queries of one operation by outcome. The outcomes add up to Queries.
type OpReport struct {
	Queries   uint64
	OK        uint64
	NotFound  uint64
	CASFailed uint64
	TimedOut  uint64
	Failed    uint64 // number of queries with another error
	Error     string // message of the first of the Failed queries
	Latency   *hdrhistogram.Histogram
}

// Queries is the number of queries, whatever their outcome.
func (r *Report) Queries() (n uint64) {
	for _, o := range r.Ops {
		n += o.Queries
	}
	return n
}

// Rate is the number of answered queries a second.
func (r *Report) Rate() float64 {
	var lost uint64
	for _, o := range r.Ops {
		lost += o.TimedOut + o.Failed
	}
	return float64(r.Queries()-lost) / r.Elapsed.Seconds()
}

const highest = int64(10 * time.Minute)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, highest, 3) }

// Run makes queries until Duration or Count is reached, or ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Duration)
		defer cancel()
	}
	var started, finished atomic.Uint64
	workers := make([]*worker, cfg.Workers)
	for i := range workers {
		w, err := newWorker(&cfg, i, &started, &finished)
		if err != nil {
			for _, w := range workers[:i] {
				w.link.close()
			}
			return nil, err
		}
		workers[i] = w
	}
	stopProgress := cfg.report(&finished)
	var wg sync.WaitGroup
	begun := time.Now()
	for _, w := range workers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	elapsed := time.Since(begun)
	stopProgress()

	out := &Report{Elapsed: elapsed, Workers: cfg.Workers, Outstanding: cfg.Outstanding, All: newHistogram()}
	for op := range out.Ops {
		out.Ops[op].Latency = newHistogram()
	}
	for _, w := range workers {
		w.link.close()
		if w.err != nil {
			return nil, w.err
		}
		out.add(w)
	}
	return out, nil
}

func (r *Report) add(w *worker) {
	for op := range r.Ops {
		from, to := &w.ops[op], &r.Ops[op]
		to.Queries += from.Queries
		to.OK += from.OK
		to.NotFound += from.NotFound
		to.CASFailed += from.CASFailed
		to.TimedOut += from.TimedOut
		to.Failed += from.Failed
		if to.Error == "" {
			to.Error = from.Error
		}
		to.Latency.Merge(from.Latency)
		r.All.Merge(from.Latency)
	}
	s := w.machine.Stats()
	r.Stats.Started += s.Started
	r.Stats.Completed += s.Completed
	r.Stats.Sent += s.Sent
	r.Stats.Retransmits += s.Retransmits
	r.Stats.Resent += s.Resent
	r.Stats.Received += s.Received
	r.Stats.Refusals += s.Refusals
	r.Stats.Strays += s.Strays
	r.Stats.Malformed += s.Malformed
	r.Stats.Foreign += s.Foreign
}

func (c *Config) check() error {
	switch {
	case c.Workers < 1 || c.Outstanding < 1:
		return errors.New("a bench needs a worker and a query outstanding")
	case len(c.Keys) == 0:
		return errors.New("a bench needs keys")
	case c.Mix.Get < 0 || c.Mix.Put < 0 || c.Mix.CAS < 0 || c.Mix.Get+c.Mix.Put+c.Mix.CAS == 0:
		return errors.New("a bench needs a mix with something in it")
	case c.Duration <= 0 && c.Count == 0:
		return errors.New("a bench needs a duration or a count")
	case c.Timeout <= 0:
		return errors.New("a bench needs a timeout for its queries")
	case c.ValueBytes < 0 || c.ValueBytes > c.Client.Profile.ValueBytes():
		return fmt.Errorf("values of %d bytes do not fit: the switches' program holds %d", c.ValueBytes, c.Client.Profile.ValueBytes())
	case c.Zipf < 0:
		return errors.New("the exponent of Zipf's law is not negative")
	}
	if writes := c.Mix.Put + c.Mix.CAS; writes > 0 && len(c.Sessions) > 0 && len(c.Sessions) < c.Workers {
		return fmt.Errorf("%d sessions are too few for %d workers that write", len(c.Sessions), c.Workers)
	}
	if c.Serial {
		c.Outstanding = c.Workers
	}
	c.Workers = min(c.Workers, c.Outstanding)
	return nil
}

// report calls Progress once a second, until stop is called.
func (c *Config) report(finished *atomic.Uint64) (stop func()) {
	if c.Progress == nil {
		return func() {}
	}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		begun, tick := time.Now(), time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				c.Progress(time.Since(begun), finished.Load())
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
	}
}

// worker is a closed loop of queries.
type worker struct {
	cfg               *Config
	machine           *calls.Machine
	link              link
	outstanding       int
	rand              *rand.Rand
	pick              func() int
	value             []byte
	versions          []wire.Version // last known version of each key, by the key's index, for CAS
	tags              []tag
	idle              []*tag
	ops               [ops]OpReport
	started, finished *atomic.Uint64
	begun             time.Time
	err               error
}

// tag identifies an outstanding query.
type tag struct {
	op  Op
	key int
}

func newWorker(cfg *Config, i int, started, finished *atomic.Uint64) (*worker, error) {
	r := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
	w := &worker{cfg: cfg, rand: r, value: make([]byte, cfg.ValueBytes), versions: make([]wire.Version,
		len(cfg.Keys)), started: started, finished: finished}
	w.outstanding = cfg.Outstanding / cfg.Workers
	if i < cfg.Outstanding%cfg.Workers {
		w.outstanding++
	}
	w.tags = make([]tag, w.outstanding)
	for n := range w.tags {
		w.idle = append(w.idle, &w.tags[n])
	}
	w.pick = func() int { return r.IntN(len(cfg.Keys)) }
	if cfg.Zipf > 0 {
		w.pick = zipf.Keys(cfg.Zipf, len(cfg.Keys))(r)
	}
	for op := range w.ops {
		w.ops[op].Latency = newHistogram()
	}
	c := cfg.Client
	c.Seed = rand.Uint64() // random, because two runs through one UDP port must not use the same numbers
	var err error
	if w.machine, err = calls.New(c); err != nil {
		return nil, err
	}
	for n := i; n < len(cfg.Sessions); n += cfg.Workers {
		if err := w.machine.AddSession(0, cfg.Sessions[n]); err != nil {
			return nil, err
		}
	}
	if cfg.Serial {
		w.link, err = newBlockingLink(cfg.Client.Profile)
	} else {
		w.link, err = newBatchLink(cfg.Client.Profile)
	}
	return w, err
}

func (w *worker) run(ctx context.Context) {
	if w.cfg.Serial {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	var over atomic.Bool
	stop := context.AfterFunc(ctx, func() { over.Store(true) })
	defer stop()
	w.begun = time.Now()
	for {
		now := time.Since(w.begun)
		for !over.Load() && len(w.idle) > 0 && w.more() {
			w.query(now)
		}
		w.machine.Tick(now)
		sends, completions := w.machine.Take()
		for i := range completions {
			w.complete(&completions[i])
		}
		if err := w.link.send(sends); err != nil {
			w.err = err
			return
		}
		if len(completions) > 0 { // completed queries leave room for new ones
			continue
		}
		next, busy := w.machine.NextTick()
		if !busy {
			return
		}
		if err := w.link.receive(next-time.Since(w.begun), w.take); err != nil {
			w.err = err
			return
		}
	}
}

// more claims the next query. It returns false if the run has no more queries to make.
func (w *worker) more() bool {
	if w.cfg.Count == 0 {
		return true
	}
	return w.started.Add(1) <= w.cfg.Count
}

func (w *worker) query(now time.Duration) {
	t := w.idle[len(w.idle)-1]
	w.idle = w.idle[:len(w.idle)-1]
	mix := w.cfg.Mix
	t.key = w.pick()
	req := calls.Request{Key: w.cfg.Keys[t.key], Deadline: now + w.cfg.Timeout, Tag: t}
	switch n := w.rand.IntN(mix.Get + mix.Put + mix.CAS); {
	case n < mix.Get:
		t.op, req.Op, req.Eventual = Get, wire.Read, w.cfg.Eventual
	case n < mix.Get+mix.Put:
		t.op, req.Op, req.Value = Put, wire.Write, w.nextValue()
	default:
		t.op, req.Op, req.Value, req.Expected = CAS, wire.CAS, w.nextValue(), w.versions[t.key]
	}
	w.machine.Start(now, req)
}

// nextValue returns a value that differs from the last one.
func (w *worker) nextValue() []byte {
	for i := range min(8, len(w.value)) {
		w.value[i]++
		if w.value[i] != 0 {
			break
		}
	}
	return w.value
}

func (w *worker) take(from netip.AddrPort, payload []byte) {
	w.machine.Receive(time.Since(w.begun), from, payload)
}

func (w *worker) complete(c *calls.Completion) {
	t := c.Tag.(*tag)
	w.idle = append(w.idle, t)
	w.finished.Add(1)
	o := &w.ops[t.op]
	o.Queries++
	answered := true
	var e *calls.OpError
	if c.Result.Err == nil {
		o.OK++
		w.versions[t.key] = max(w.versions[t.key], c.Result.Version)
	} else if !errors.As(c.Result.Err, &e) {
		answered = false
		o.Failed++
	} else {
		switch e.Err {
		case calls.ErrNotFound:
			o.NotFound++
			w.versions[t.key] = max(w.versions[t.key], e.Version)
		case calls.ErrCASFailed:
			o.CASFailed++
			w.versions[t.key] = max(w.versions[t.key], e.Version)
		case calls.ErrTimeout:
			o.TimedOut++
			answered = false
		default:
			o.Failed++
			answered = false
			if o.Error == "" {
				o.Error = e.Error()
			}
		}
	}
	if answered {
		_ = o.Latency.RecordValue(min(int64(c.Result.RTT), highest)) // min keeps the value within the histogram's range
	}
}
