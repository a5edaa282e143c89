package world

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"
)

// Procedures of package ops are plain functions that block. Here they are coroutines: one runs at a
// time, until it waits for something; the loop resumes it when that has happened. So the same seed
// does the same.

// task is a coroutine of a controller's. It dies with it.
type task struct {
	s      *Shell
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	number int   // how often it has waited
	waits  bool  // it does now
	ctx    *span // while it waits
	over   bool  // the run has ended
}

var errOver = errors.New("the run is over")

// start runs do as a task of the controller's, and then reports. The context ends what it waits
// for.
func (s *Shell) start(do func(context.Context) error, then func(error)) *span {
	ctx := &span{w: s.World}
	s.spawn(func(t *task) {
		if err := do(ctx); !t.over {
			s.Later(0, func() { then(err) })
		}
	})
	return ctx
}

func (s *Shell) spawn(do func(*task)) {
	t := &task{s: s}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		do(t)
	})
	s.World.tasks = append(s.World.tasks, t)
	s.Later(0, t.resume)
}

// resume lets it go on until it waits again, or ends.
func (t *task) resume() {
	w := t.s.World
	before := w.running
	w.running = t
	if _, more := t.next(); !more {
		w.tasks = slices.DeleteFunc(w.tasks, func(x *task) bool { return x == t })
	}
	w.running = before
}

// wait lets the others go on until somebody wakes the task, until a moment (0: none), or until ctx
// ends (nil: it does not), and says why if that has ended.
func (t *task) wait(ctx *span, until time.Duration) error {
	if t.over {
		return errOver
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.number++
	if end := ctx.until(); end != 0 && (until == 0 || end < until) {
		until = end
	}
	if until != 0 {
		number := t.number
		t.s.World.Loop.At(until, func() { t.awake(number) })
	}
	t.ctx, t.waits = ctx, true
	ctx.count(1)
	t.over = !t.yield(struct{}{})
	t.waits = false
	ctx.count(-1)
	if t.over {
		return errOver
	}
	return ctx.Err()
}

// wake ends its waiting, soon.
func (t *task) wake() {
	if t.waits {
		number := t.number
		t.s.World.Loop.After(0, func() { t.awake(number) })
	}
}

func (t *task) awake(number int) {
	if t.waits && t.number == number && t.s.Alive {
		t.resume()
	}
}

// EndTasks ends all that wait yet.
func (w *World) EndTasks() {
	for len(w.tasks) > 0 {
		t := w.tasks[0]
		w.tasks = w.tasks[1:]
		w.running, t.over = t, true
		for c := t.ctx; c != nil; c = c.parent {
			c.err = errOver
		}
		t.stop()
	}
}

// await starts something that says when it is done, and waits for that.
func (s *Shell) await(ctx context.Context, begin func(done func(error))) error {
	t := s.World.running
	over := false
	var result error
	begin(func(err error) {
		over, result = true, err
		t.wake()
	})
	for !over {
		if err := t.wait(ctx.(*span), 0); err != nil && !over {
			return err
		}
	}
	return result
}

// span is a context.Context by the time of the simulation.
type span struct {
	w       *World
	parent  *span
	end     time.Duration // 0: none of its own
	err     error
	waiting int // tasks that wait in it or below
}

// Deadline implements context.Context: who wants to wait does so by task.wait.
func (c *span) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *span) Done() <-chan struct{} { return nil }

// Value implements context.Context.
func (c *span) Value(any) any { return nil }

// Err implements context.Context.
func (c *span) Err() error {
	for ; c != nil; c = c.parent {
		switch {
		case c.err != nil:
			return c.err
		case c.end != 0 && c.w.Loop.Now >= c.end:
			return context.DeadlineExceeded
		}
	}
	return nil
}

// until is when it ends by itself; 0: it does not.
func (c *span) until() (end time.Duration) {
	for ; c != nil; c = c.parent {
		if c.end != 0 && (end == 0 || c.end < end) {
			end = c.end
		}
	}
	return end
}

func (c *span) count(n int) {
	for ; c != nil; c = c.parent {
		c.waiting += n
	}
}

// cancel ends it.
func (c *span) cancel(err error) {
	if c.err == nil {
		c.err = err
	}
	if c.waiting == 0 {
		return
	}
	for _, t := range c.w.tasks {
		for x := t.ctx; t.waits && x != nil; x = x.parent {
			if x == c {
				t.wake()
			}
		}
	}
}

// coroutines is an ops.Runtime.
type coroutines struct {
	s       *Shell
	copying bool // for what copies
}

// Now implements ops.Runtime.
func (c coroutines) Now() time.Duration { return c.s.World.Loop.Now }

// Sleep implements ops.Runtime.
func (c coroutines) Sleep(ctx context.Context, d time.Duration) error {
	w := c.s.World
	return w.running.wait(ctx.(*span), w.Loop.Now+max(d, 1))
}

// WithTimeout implements ops.Runtime.
func (c coroutines) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	w := c.s.World
	inner := &span{w: w, parent: ctx.(*span), end: w.Loop.Now + d}
	return inner, func() { inner.cancel(context.Canceled) }
}

// ForEach implements ops.Runtime.
func (c coroutines) ForEach(ctx context.Context, n, window int, do func(context.Context, int) error) error {
	inner := &span{w: c.s.World, parent: ctx.(*span)}
	t := c.s.World.running
	begun, done, left := 0, 0, min(n, window)
	early := c.s.World.Without.EndsEarly && c.copying && window > 2
	var failed error
	for range left {
		c.s.spawn(func(*task) {
			for begun < n && inner.Err() == nil {
				i := begun
				begun++
				if err := do(inner, i); err != nil && failed == nil {
					failed = err
					inner.cancel(err)
				}
				if done++; early {
					t.wake()
				}
			}
			if left--; left == 0 {
				t.wake()
			}
		})
	}
	for left > 0 && !t.over && !(early && done >= (n+1)/2) {
		_ = t.wait(nil, 0)
	}
	if early {
		inner.cancel(context.Canceled)
		return ctx.Err()
	}
	if failed == nil && t.over {
		failed = errOver
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}
