package leaderlink

import (
	"context"
)

// task is the leader's work for one node, until the node has gone or the term ends. The next term
// begins a new one.
type task struct {
	ctx  context.Context
	stop context.CancelFunc
}

func newTask(ctx context.Context) *task {
	ctx, stop := context.WithCancel(ctx)
	return &task{ctx, stop}
}

// running reports whether the task continues. A nil task does not.
func (t *task) running() bool { return t != nil && t.ctx.Err() == nil }

// endOthers ends the tasks that are not wanted.
func endOthers(tasks map[string]*task, wanted map[string]bool) {
	for key, t := range tasks {
		if !wanted[key] {
			t.stop()
			delete(tasks, key)
		}
	}
}
