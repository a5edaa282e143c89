package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/netcraq/netcraq/experiments/coordinators"
)

// coordinate runs a job with two clients of one coordinator.
type coordinate struct {
	kind, address, job string
	seconds            float64
	warm, least        int
}

func (l coordinate) run(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var clients [2]coordinators.Client
	for i := range clients {
		c, err := coordinators.Open(ctx, l.kind, l.address)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", l.kind, l.address, err)
		}
		defer c.Close()
		clients[i] = c
	}
	job, end, err := coordinators.NewJob(ctx, l.job, clients[0], clients[1])
	if err != nil {
		return err
	}
	defer end()
	call := func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, coordinators.TTL)
		defer cancel()
		took, err := job(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("%s, %s: %w", l.kind, l.job, err), context.Cause(ctx))
		}
		return took, err
	}
	for range l.warm {
		if _, err := call(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	var all []time.Duration
	cpu, began := processTime(), time.Now()
	for time.Since(began).Seconds() < l.seconds || len(all) < l.least {
		took, err := call()
		if err != nil {
			return err
		}
		all = append(all, took)
	}
	return json.NewEncoder(out).Encode(newReport(all, time.Since(began), processTime()-cpu, clients[0].Name()))
}
