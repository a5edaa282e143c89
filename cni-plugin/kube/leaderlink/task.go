package leaderlink

import (
	"context"
)

// task is what a leader does for one node until the node has gone, or the term ends. In the next
// term it is begun again.
type task struct {
	ctx  context.Context
	stop context.CancelFunc
}

func newTask(ctx context.Context) *task {
	ctx, stop := context.WithCancel(ctx)
	return &task{ctx, stop}
}

// running says whether it continues; nil: it was not begun.
func (t *task) running() bool { return t != nil && t.ctx.Err() == nil }

// endOthers ends the tasks that are no longer wanted.
func endOthers(tasks map[string]*task, wanted map[string]bool) {
	for key, t := range tasks {
		if !wanted[key] {
			t.stop()
			delete(tasks, key)
		}
	}
}
