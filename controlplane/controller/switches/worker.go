package switches

import (
	"context"
	"sync"
)

// job runs a function on the worker, and waits for it. If ctx ends before the worker begins it,
// the function does not run.
func (d *Device) job(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	d.Submit(func(worker context.Context) {
		if ctx.Err() == nil {
			done <- do(worker)
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Submit queues a job for the worker, after all jobs submitted before.
func (d *Device) Submit(job func(context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended { // the caller may be waiting for the job to end
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go func() {
			d.late.Lock()
			defer d.late.Unlock()
			job(ctx)
		}()
		return
	}
	d.jobs = append(d.jobs, job)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run connects and works until ctx ends, or the device is stopped.
func (d *Device) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.Client.Run(ctx) })
	wg.Go(func() { d.sendQueued(ctx) })
	for {
		d.mu.Lock()
		var job func(context.Context)
		if len(d.jobs) > 0 {
			job, d.jobs = d.jobs[0], d.jobs[1:]
		} else if ctx.Err() != nil {
			d.ended = true
		}
		ended := d.ended
		d.mu.Unlock()
		if ended {
			return
		}
		if job != nil {
			job(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		}
	}
}
