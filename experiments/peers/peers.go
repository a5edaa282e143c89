// Package peers generates load on common alternatives to NetCRAQ: etcd through its own client,
// Redis through go-redis, and memcached over UDP.
//
// The load is generated in the same way as by netcraqctl bench, so that the results are comparable.
// A fixed number of queries is outstanding, each answer starts the next query, and keys are drawn
// uniformly or by Zipf's law. Every returned value must be one that was written to its key; a wrong
// value is an error. With a rate, queries start at fixed times instead, to measure a store below
// its full load.
package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// Store is one worker's connection to a store. Only one goroutine at a time uses it.
type Store interface {
	// Get returns a key's value.
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Close() error
}

// Peer opens connections to a store.
type Peer interface {
	// Open returns the store of worker number n. Workers may share a connection if the client
	// supports that.
	Open(ctx context.Context, n int) (Store, error)
	Close() error
}

// Config describes a run.
type Config struct {
	Outstanding int // number of workers, each with one outstanding query
	// Rate is the number of queries a second that become due, over all workers. If a query starts
	// late because the previous one was slow, its latency includes that delay. If Rate is 0, each
	// answer starts the next query.
	Rate       int
	Gets, Puts int // relative frequencies of the operations, in any unit
	Keys       int
	ValueBytes int // at least 12, for the numbers of the key and of the write
	Zipf       func(*rand.Rand) func() int
	Duration   time.Duration
	Timeout    time.Duration // time limit of one query
	Seed       uint64
}

// Report holds a run's measurements. Latencies are in nanoseconds.
type Report struct {
	Elapsed    time.Duration
	Get, Put   OpReport
	FirstError string
}

// OpReport holds the outcomes of one operation's queries.
type OpReport struct {
	Queries, Lost, Failed uint64
	Latency               *hdrhistogram.Histogram
}

// Rate returns the number of answered queries a second.
func (r *Report) Rate() float64 {
	n := r.Get.Queries + r.Put.Queries - r.Get.Lost - r.Put.Lost - r.Get.Failed - r.Put.Failed
	return float64(n) / r.Elapsed.Seconds()
}

// ErrWrongValue says that a store returned a value that was never written to the key.
var ErrWrongValue = errors.New("a value came back that was not written to this key")

const minValue = 12

func (c *Config) check() error {
	switch {
	case c.Outstanding < 1:
		return errors.New("at least one query must be outstanding")
	case c.Gets < 0 || c.Puts < 0 || c.Gets+c.Puts == 0:
		return errors.New("the mix is empty")
	case c.Keys < 1:
		return errors.New("at least one key is needed")
	case c.ValueBytes < minValue:
		return fmt.Errorf("values of %d bytes are too short to be told apart; %d is the least", c.ValueBytes, minValue)
	case c.Rate < 0:
		return fmt.Errorf("a rate of %d queries a second is below 0", c.Rate)
	case c.Duration <= 0 || c.Timeout <= 0:
		return errors.New("the run and its queries need a duration")
	}
	return nil
}

// KeyName returns the name of key number n. It is as long as the etcd key of a small cluster
// object.
func KeyName(n int) string { return fmt.Sprintf("/bench/%08d", n) }

// value fills b with the value of a key. The value contains the key's number and the number of the
// write, repeatedly.
func value(b []byte, key int, write uint64) {
	binary.BigEndian.PutUint32(b, uint32(key))
	binary.BigEndian.PutUint64(b[4:], write)
	for i := minValue; i < len(b); i++ {
		b[i] = b[i%minValue]
	}
}

// verify checks that a value belongs to a key.
func verify(b []byte, key, length int) error {
	if len(b) != length || binary.BigEndian.Uint32(b) != uint32(key) {
		return fmt.Errorf("key %s: %d bytes %x: %w", KeyName(key), len(b), b[:min(len(b), 16)], ErrWrongValue)
	}
	for i := minValue; i < len(b); i++ {
		if b[i] != b[i%minValue] {
			return fmt.Errorf("key %s: byte %d differs: %w", KeyName(key), i, ErrWrongValue)
		}
	}
	return nil
}

// Fill writes every key once, so that each read finds a value. At any time, it has as many
// outstanding writes as the run has outstanding queries.
func Fill(ctx context.Context, p Peer, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for i := range min(cfg.Outstanding, cfg.Keys) {
		group.Go(func() error {
			s, err := p.Open(ctx, i)
			if err != nil {
				return err
			}
			for k := int(next.Add(1)) - 1; k < cfg.Keys && err == nil; k = int(next.Add(1)) - 1 {
				b := make([]byte, cfg.ValueBytes)
				value(b, k, 0)
				if err = s.Put(ctx, KeyName(k), b); err != nil {
					err = fmt.Errorf("writing key %s: %w", KeyName(k), err)
				}
			}
			return errors.Join(err, s.Close())
		})
	}
	return group.Wait()
}

// Run generates load on a peer whose keys have been filled.
func Run(ctx context.Context, p Peer, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	workers := make([]*worker, cfg.Outstanding)
	for i := range workers {
		s, err := p.Open(ctx, i)
		if err != nil {
			for _, w := range workers[:i] {
				_ = w.store.Close()
			}
			return nil, err
		}
		workers[i] = newWorker(cfg, i, s)
	}
	var over atomic.Bool
	timer := time.AfterFunc(cfg.Duration, func() { over.Store(true) })
	defer timer.Stop()
	begun := time.Now()
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.run(ctx, &over, begun) })
	}
	wg.Wait()
	out := &Report{Elapsed: time.Since(begun), Get: OpReport{Latency: histogram()}, Put: OpReport{Latency: histogram()}}
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.wrong, w.store.Close())
		for _, x := range []struct{ to, from *OpReport }{{&out.Get, &w.get}, {&out.Put, &w.put}} {
			x.to.Queries += x.from.Queries
			x.to.Lost += x.from.Lost
			x.to.Failed += x.from.Failed
			x.to.Latency.Merge(x.from.Latency)
		}
		if out.FirstError == "" && w.firstError != nil {
			out.FirstError = w.firstError.Error()
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	return out, nil
}

func histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

// worker is one closed loop with one outstanding query.
type worker struct {
	cfg        Config
	number     int
	store      Store
	rand       *rand.Rand
	pick       func() int
	writes     uint64
	get, put   OpReport
	firstError error
	wrong      error
}

func newWorker(cfg Config, i int, s Store) *worker {
	r := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
	w := &worker{cfg: cfg, number: i, store: s, rand: r, writes: uint64(i) << 40, get: OpReport{Latency: histogram()},
		put: OpReport{Latency: histogram()}}
	w.pick = func() int { return r.IntN(cfg.Keys) }
	if cfg.Zipf != nil {
		w.pick = cfg.Zipf(r)
	}
	return w
}

// due waits until the worker's query number n must start. It returns the time from which the
// query's latency counts. If the query is late, this is the time when it was due. Otherwise it is
// the time when the timer woke the worker, so that a late timer does not count against the store.
func (w *worker) due(ctx context.Context, begun time.Time, n int) time.Time {
	if w.cfg.Rate == 0 {
		return time.Now()
	}
	at := begun.Add(time.Duration(float64(n*w.cfg.Outstanding+w.number) / float64(w.cfg.Rate) * float64(time.Second)))
	wait := time.Until(at)
	if wait <= 0 {
		return at
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return time.Now()
}

func (w *worker) run(ctx context.Context, over *atomic.Bool, start time.Time) {
	for n := 0; ctx.Err() == nil && w.wrong == nil; n++ {
		begun := w.due(ctx, start, n)
		if over.Load() {
			return
		}
		key := w.pick()
		o, op := &w.get, w.read
		if w.rand.IntN(w.cfg.Gets+w.cfg.Puts) >= w.cfg.Gets {
			o, op = &w.put, w.write
		}
		ask, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
		err := op(ask, key)
		took := time.Since(begun)
		cancel()
		o.Queries++
		switch {
		case err == nil:
			_ = o.Latency.RecordValue(max(1, took.Nanoseconds()))
		case errors.Is(err, ErrWrongValue):
			w.wrong = err
		default:
			if errors.Is(err, context.DeadlineExceeded) {
				o.Lost++
			} else {
				o.Failed++
			}
			if w.firstError == nil {
				w.firstError = err
			}
		}
	}
}

func (w *worker) read(ctx context.Context, key int) error {
	b, err := w.store.Get(ctx, KeyName(key))
	if err != nil {
		return err
	}
	return verify(b, key, w.cfg.ValueBytes)
}

func (w *worker) write(ctx context.Context, key int) error {
	w.writes++
	b := make([]byte, w.cfg.ValueBytes)
	value(b, key, w.writes)
	return w.store.Put(ctx, KeyName(key), b)
}
