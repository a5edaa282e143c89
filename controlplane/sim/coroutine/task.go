package coroutine

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
)

// Scheduler holds the coroutines of a run. At most one coroutine runs at a time. While no coroutine
// runs, the loop runs.
type Scheduler struct {
	loop    *clockwork.Loop
	tasks   []*Task // tasks that have not ended
	running *Task   // nil while the loop runs
}

// NewScheduler makes a scheduler that takes its time from a loop.
func NewScheduler(loop *clockwork.Loop) *Scheduler { return &Scheduler{loop: loop} }

// Running returns the coroutine that runs at present, or nil if none does.
func (s *Scheduler) Running() *Task { return s.running }

// Process is a simulated process that owns coroutines. The coroutines end when the process dies.
type Process struct {
	*Scheduler
	Alive func() bool
}

// later runs do after d, if the process is still alive.
func (p *Process) later(d time.Duration, do func()) {
	p.loop.After(d, func() {
		if p.Alive() {
			do()
		}
	})
}

// Task is a coroutine of a process.
type Task struct {
	p      *Process
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	number int   // number of times that the task has waited so far
	waits  bool  // the task is waiting
	ctx    *Span // context of the present wait
	over   bool  // whether the run has ended
}

// ErrOver is the error that a waiting task gets when the run is over.
var ErrOver = errors.New("the run is over")

// Start runs do as a task of the process. At the end, it calls the function then with the task's
// error. Cancelling the returned context ends the task's waiting.
func (p *Process) Start(do func(context.Context) error, then func(error)) *Span {
	ctx := &Span{s: p.Scheduler}
	p.spawn(func(t *Task) {
		if err := do(ctx); !t.over {
			p.later(0, func() { then(err) })
		}
	})
	return ctx
}

func (p *Process) spawn(do func(*Task)) {
	t := &Task{p: p}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		do(t)
	})
	p.tasks = append(p.tasks, t)
	p.later(0, t.resume)
}

// resume lets the task continue until it waits again, or ends.
func (t *Task) resume() {
	s := t.p.Scheduler
	before := s.running
	s.running = t
	if _, more := t.next(); !more {
		s.tasks = slices.DeleteFunc(s.tasks, func(x *Task) bool { return x == t })
	}
	s.running = before
}

// Wait suspends the task until somebody wakes it, until a moment (0 means no limit), or until ctx
// ends, if ctx is not nil. If ctx has ended, Wait returns the reason.
func (t *Task) Wait(ctx *Span, until time.Duration) error {
	if t.over {
		return ErrOver
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
		t.p.loop.At(until, func() { t.awake(number) })
	}
	t.ctx, t.waits = ctx, true
	ctx.count(1)
	t.over = !t.yield(struct{}{})
	t.waits = false
	ctx.count(-1)
	if t.over {
		return ErrOver
	}
	return ctx.Err()
}

// Wake schedules an event that ends the task's wait.
func (t *Task) Wake() {
	if t.waits {
		number := t.number
		t.p.loop.After(0, func() { t.awake(number) })
	}
}

func (t *Task) awake(number int) {
	if t.waits && t.number == number && t.p.Alive() {
		t.resume()
	}
}

// End ends all tasks that still wait.
func (s *Scheduler) End() {
	for len(s.tasks) > 0 {
		t := s.tasks[0]
		s.tasks = s.tasks[1:]
		s.running, t.over = t, true
		for c := t.ctx; c != nil; c = c.parent {
			c.err = ErrOver
		}
		t.stop()
	}
}

// Await calls begin, and waits until begin calls done.
func (p *Process) Await(ctx context.Context, begin func(done func(error))) error {
	t := p.running
	over := false
	var result error
	begin(func(err error) {
		over, result = true, err
		t.Wake()
	})
	for !over {
		if err := t.Wait(ctx.(*Span), 0); err != nil && !over {
			return err
		}
	}
	return result
}

// Span is a context.Context in simulated time.
type Span struct {
	s       *Scheduler
	parent  *Span
	end     time.Duration // 0 if the context has no deadline of its own
	err     error
	waiting int // number of tasks that wait under this context or a context derived from it
}

// Deadline implements context.Context. Tasks wait by Task.Wait instead.
func (c *Span) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *Span) Done() <-chan struct{} { return nil }

// Value implements context.Context.
func (c *Span) Value(any) any { return nil }

// Err implements context.Context.
func (c *Span) Err() error {
	for ; c != nil; c = c.parent {
		switch {
		case c.err != nil:
			return c.err
		case c.end != 0 && c.s.loop.Now >= c.end:
			return context.DeadlineExceeded
		}
	}
	return nil
}

// until returns the earliest deadline of the context and its parents, or 0 if there is none.
func (c *Span) until() (end time.Duration) {
	for ; c != nil; c = c.parent {
		if c.end != 0 && (end == 0 || c.end < end) {
			end = c.end
		}
	}
	return end
}

func (c *Span) count(n int) {
	for ; c != nil; c = c.parent {
		c.waiting += n
	}
}

// Cancel ends the context with an error.
func (c *Span) Cancel(err error) {
	if c.err == nil {
		c.err = err
	}
	if c.waiting == 0 {
		return
	}
	for _, t := range c.s.tasks {
		for x := t.ctx; t.waits && x != nil; x = x.parent {
			if x == c {
				t.Wake()
			}
		}
	}
}

// Runtime is an ops.Runtime in simulated time.
type Runtime struct {
	*Process
	// EndsEarly is set for a mutant. With it, ForEach does not wait for all calls that it has
	// begun.
	EndsEarly bool
}

// Now implements ops.Runtime.
func (r Runtime) Now() time.Duration { return r.loop.Now }

// Sleep implements ops.Runtime.
func (r Runtime) Sleep(ctx context.Context, d time.Duration) error {
	return r.running.Wait(ctx.(*Span), r.loop.Now+max(d, 1))
}

// WithTimeout implements ops.Runtime.
func (r Runtime) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner := &Span{s: r.Scheduler, parent: ctx.(*Span), end: r.loop.Now + d}
	return inner, func() { inner.Cancel(context.Canceled) }
}

// ForEach implements ops.Runtime.
func (r Runtime) ForEach(ctx context.Context, n, window int, do func(context.Context, int) error) error {
	inner := &Span{s: r.Scheduler, parent: ctx.(*Span)}
	t := r.running
	begun, done, left := 0, 0, min(n, window)
	early := r.EndsEarly && window > 2
	var failed error
	for range left {
		r.spawn(func(*Task) {
			for begun < n && inner.Err() == nil {
				i := begun
				begun++
				if err := do(inner, i); err != nil && failed == nil {
					failed = err
					inner.Cancel(err)
				}
				if done++; early {
					t.Wake()
				}
			}
			if left--; left == 0 {
				t.Wake()
			}
		})
	}
	for left > 0 && !t.over && !(early && done >= (n+1)/2) {
		_ = t.Wait(nil, 0)
	}
	if early {
		inner.Cancel(context.Canceled)
		return ctx.Err()
	}
	if failed == nil && t.over {
		failed = ErrOver
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}
