package leaderlink

import (
	"context"
)

// task is the leader's work for one node. It ends when the node has gone or the leader's term ends.
// The next term begins a new task.
type task struct {
	ctx  context.Context
	stop context.CancelFunc
}

func newTask(ctx context.Context) *task {
	ctx, stop := context.WithCancel(ctx)
	return &task{ctx, stop}
}

// running reports whether the task has not ended. It is false for a nil task.
func (t *task) running() bool { return t != nil && t.ctx.Err() == nil }

// endOthers ends all tasks that are not in wanted.
func endOthers(tasks map[string]*task, wanted map[string]bool) {
	for key, t := range tasks {
		if !wanted[key] {
			t.stop()
			delete(tasks, key)
		}
	}
}
