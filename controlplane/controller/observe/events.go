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

// eventHistory is the maximum number of events that a Log keeps.
const eventHistory = 4096

// maxText is the length, in bytes, to which Printable truncates a longer text.
const maxText = 4096

// Printable makes text that may come from switches safe to show to people. It escapes characters
// that control a terminal as Go does, and truncates a long text.
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

// Log holds the events of this controller's life, for later queries and for listeners. It is safe
// for concurrent use.
type Log struct {
	log   *slog.Logger
	count func(admin.Event) // a function that is called with each event, too; nil if there are no metrics

	mu     sync.Mutex
	events []admin.Event // the last eventHistory events
	last   uint64
	grown  chan struct{} // closed and replaced when an event is added
}

// NewLog returns a log that also writes each event to the given logger and passes it to count.
func NewLog(log *slog.Logger, count func(admin.Event)) *Log {
	return &Log{log: log, count: count, grown: make(chan struct{})}
}

// Add adds an event of a switch, a chain, both, or neither. It makes the message Printable.
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

// Since returns the stored events with numbers above id, and a channel that is closed when another
// event is added.
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
