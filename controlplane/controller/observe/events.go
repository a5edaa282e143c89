package observe

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/netcraq/netcraq/api/admin"
)

// eventHistory is how many events are kept.
const eventHistory = 4096

// maxText is the most bytes of a text that Printable does not shorten.
const maxText = 4096

// Printable returns a text in which switches may have a part as people are shown it. Characters
// that a terminal would obey are written as in Go, and a long text ends early.
func Printable(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Log is the events of this controller's life, for those who ask later and those who listen.
// It is safe for concurrent use.
type Log struct {
	log   *slog.Logger
	count func(admin.Event) // each event as well; nil: nobody counts

	mu     sync.Mutex
	events []admin.Event // the last eventHistory
	last   uint64
	grown  chan struct{} // closed, and replaced, when an event is added
}

// NewLog makes a log that writes each event to another log and has it counted.
func NewLog(log *slog.Logger, count func(admin.Event)) *Log {
	return &Log{log: log, count: count, grown: make(chan struct{})}
}

// Add adds an event, of a switch or a chain or both, or of neither. Its message becomes Printable.
func (l *Log) Add(kind, sw, chainName, message string) {
	message = Printable(message)
	l.mu.Lock()
	l.last++
	l.events = append(l.events, admin.Event{ID: l.last, Time: time.Now().UTC(), Type: kind, Switch: sw,
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

// Since is the events after the one numbered id that are still there, and a channel that is closed
// when there are more.
func (l *Log) Since(id uint64) ([]admin.Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.events, id, func(e admin.Event, id uint64) int {
		if e.ID <= id {
			return -1
		}
		return 1
	})
	return slices.Clone(l.events[i:]), l.grown
}
