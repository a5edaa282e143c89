package dev

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// Durations of a failover test.
const (
	calm       = 500 * time.Millisecond // how long calls run before the kill, and after the chain is complete again
	pause      = time.Millisecond       // pause of a program between two calls
	tookTooBad = 30 * time.Second       // timeout for the chain's recovery
)

// Report is the cost of a failover.
type Report struct {
	Members       []string // the chain's members after the failover
	Reads, Writes Calls
}

// Calls has statistics of consecutive calls of one kind that one program makes.
type Calls struct {
	Count, Failed int
	Longest       time.Duration // longest call after the kill
	Median        time.Duration // median of the calls before the kill
}

// Failover kills a switch while a program reads a key and another writes one.
func (s *Server) Failover(ctx context.Context, name string) (*Report, error) {
	c, err := s.Client(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.Background())
	if _, err := c.Put(ctx, "read", []byte("v")); err != nil {
		return nil, err
	}
	var killed atomic.Bool
	calling, stop := context.WithCancel(ctx)
	defer stop()
	var programs sync.WaitGroup
	var reads, writes Calls
	n := 0
	programs.Go(func() {
		reads = repeat(calling, &killed, func() error {
			i, err := c.Get(ctx, "read")
			if err == nil && string(i.Value) != "v" {
				err = fmt.Errorf("a key was lost")
			}
			return err
		})
	})
	programs.Go(func() {
		writes = repeat(calling, &killed, func() error {
			n++
			_, err := c.Put(ctx, "written", []byte(strconv.Itoa(n)))
			return err
		})
	})
	sleep(ctx, calm)
	killed.Store(true)
	s.network.Switch(s.network.number(name)).Kill()
	members, err := s.without(ctx, name)
	sleep(ctx, calm)
	stop()
	programs.Wait()
	if err != nil {
		return nil, err
	}
	if err := survives(ctx, c, n); err != nil {
		return nil, err
	}
	return &Report{members, reads, writes}, nil
}

// survives checks that the last write was not lost.
func survives(ctx context.Context, c *node.Client, n int) error {
	i, err := c.Get(ctx, "written")
	if err == nil && string(i.Value) != strconv.Itoa(n) {
		err = fmt.Errorf("the failover lost a write: the key has %q, %d was written", i.Value, n)
	}
	return err
}

// repeat makes calls until ctx ends, and returns their statistics.
func repeat(ctx context.Context, killed *atomic.Bool, call func() error) (r Calls) {
	var before []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := call()
		took := time.Since(began)
		r.Count++
		if err != nil {
			r.Failed++
		}
		if killed.Load() {
			r.Longest = max(r.Longest, took)
		} else {
			before = append(before, took)
		}
		time.Sleep(pause)
	}
	if slices.Sort(before); len(before) > 0 {
		r.Median = before[len(before)/2]
	}
	return r
}

// without waits until the chain serves without the named switch, and returns the remaining members.
func (s *Server) without(ctx context.Context, name string) (members []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tookTooBad)
	defer cancel()
	err = s.waitFor(ctx, func(ctx context.Context) error {
		chain, err := s.admin.Chain(ctx, "main")
		if err != nil {
			return err
		}
		members = nil
		for _, m := range chain.Members {
			members = append(members, m.Switch)
		}
		if slices.Contains(members, name) || !chain.Ready {
			return fmt.Errorf("the chain does not serve without %s", name)
		}
		return nil
	})
	return members, err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
