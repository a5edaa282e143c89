package switches

import (
	"context"
	"errors"
	"testing"
)

// TestJobsNobodyWaitsFor: a job whose caller gives up before the worker begins it is never
// executed. It must not run later, among other jobs.
func TestJobsNobodyWaitsFor(t *testing.T) {
	d := &Device{wake: make(chan struct{}, 1)} // no worker runs, which looks like a worker that is busy
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := 0
	do := func(context.Context) error { done++; return nil }
	if err := d.job(ctx, do); !errors.Is(err, context.Canceled) {
		t.Errorf("a job whose caller has gone: %v", err)
	}
	answers := make(chan error)
	go func() { answers <- d.job(t.Context(), do) }()
	for n := 0; n < 2; {
		d.mu.Lock()
		n = len(d.jobs)
		d.mu.Unlock()
	}
	for _, job := range d.jobs {
		job(t.Context())
	}
	if err := <-answers; err != nil || done != 1 {
		t.Errorf("%v, and %d jobs were done, want the one that somebody waits for", err, done)
	}
}
