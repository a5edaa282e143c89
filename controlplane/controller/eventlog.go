package controller

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
)

// eventHistory is how many events are kept.
const eventHistory = 4096

// eventLog is the events of this controller's life, for those who ask later and those who listen.
// It is safe for concurrent use.
type eventLog struct {
	log   *slog.Logger
	count func(api.Event) // each event as well; nil: nobody counts

	mu     sync.Mutex
	events []api.Event // the last eventHistory
	last   uint64
	grown  chan struct{} // closed, and replaced, when an event is added
}

func newEventLog(log *slog.Logger) *eventLog { return &eventLog{log: log, grown: make(chan struct{})} }

func (l *eventLog) add(kind, sw, chainName, message string) {
	l.mu.Lock()
	l.last++
	l.events = append(l.events, api.Event{ID: l.last, Time: time.Now().UTC(), Type: kind, Switch: sw,
		Chain: chainName, Message: message})
	if len(l.events) > eventHistory {
		l.events = slices.Delete(l.events, 0, len(l.events)-eventHistory)
	}
	close(l.grown)
	l.grown = make(chan struct{})
	e := l.events[len(l.events)-1]
	l.mu.Unlock()
	if l.count != nil {
		l.count(e)
	}
	args := []any{"event", kind}
	if sw != "" {
		args = append(args, "switch", sw)
	}
	if chainName != "" {
		args = append(args, "chain", chainName)
	}
	l.log.Info(message, args...)
}

// Announce adds an event that is not the controller's own: what runs beside it
// (placement/controller) has it shown and counted with the others.
func (c *Controller) Announce(kind, chain, message string) { c.events.add(kind, "", chain, message) }

// since is the events after the one numbered id that are still there, and a channel that is closed
// when there are more.
func (l *eventLog) since(id uint64) ([]api.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.events, id, func(e api.Event, id uint64) int {
		if e.ID <= id {
			return -1
		}
		return 1
	})
	return slices.Clone(l.events[i:]), l.grown
}
