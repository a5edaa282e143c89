package main

import (
	"sync"
	"time"
)

// kind is what a client asks an API server for.
type kind string

// Reads ask for what is newest (no resourceVersion): one object, or all of the namespace, at once
// or in pages.
const (
	create kind = "create"
	update kind = "update" // of the version that was read
	patch  kind = "patch"  // of whatever version there is
	remove kind = "delete"
	get    kind = "get"
	list   kind = "list"
)

func (k kind) writes() bool { return k != get && k != list }

// outcome is what a client knows about what it asked for.
type outcome string

// A request without an answer, or with one that says nothing, may have been executed, or be
// executed at any later time.
const (
	done    outcome = "done"
	absent  outcome = "NotFound"
	exists  outcome = "AlreadyExists"
	differs outcome = "Conflict"
	unknown outcome = "unknown"
)

// state is an object as an API server tells it; the zero state is that there is none.
type state struct {
	Found    bool   `json:"found,omitempty"`
	Value    string `json:"value,omitempty"`
	Revision int64  `json:"revision,omitempty"` // resourceVersion
}

// operation is one request. Times are since the history began, of one clock.
type operation struct {
	Client   int           `json:"client"`
	Server   string        `json:"server"`
	Kind     kind          `json:"kind"`
	Key      string        `json:"key,omitempty"`
	Value    string        `json:"value,omitempty"`    // what is written: no other write of the history has it
	Expected int64         `json:"expected,omitempty"` // an update's
	Begin    time.Duration `json:"begin"`
	End      time.Duration `json:"end"`
	Outcome  outcome       `json:"outcome"`
	Error    string        `json:"error,omitempty"`
	Read     state         `json:"read"` // what a get has read, or a write has written; of a deletion nothing
	// A list's: all objects, the revision it is of, and the keys whose absence counts.
	All      map[string]state `json:"all,omitempty"`
	Revision int64            `json:"revision,omitempty"`
	About    []string         `json:"about,omitempty"`
}

// event is what a watch has told. One without a type is a bookmark: there is nothing else up to its
// revision.
type event struct {
	At       time.Duration `json:"at"`
	Type     string        `json:"type,omitempty"`
	Revision int64         `json:"revision"`
	Key      string        `json:"key,omitempty"`
	Value    string        `json:"value,omitempty"`
}

// session is one watch of the namespace: it owes all events after From.
type session struct {
	Server  string        `json:"server"`
	Watcher int           `json:"watcher"`
	At      time.Duration `json:"at"`
	From    int64         `json:"from"`
	Events  []event       `json:"events"`
}

// until is the last revision that a session has told everything up to.
func (s *session) until() int64 {
	if n := len(s.Events); n > 0 {
		return s.Events[n-1].Revision
	}
	return s.From
}

// excuse is a time in which a server need not keep its watches current: a fault is on its node.
// Answers have to be right all the same.
type excuse struct {
	Server string        `json:"server"`
	From   time.Duration `json:"from"`
	To     time.Duration `json:"to"` // -1: it has not ended
}

// mark is something that was done to the cluster.
type mark struct {
	At   time.Duration `json:"at"`
	Text string        `json:"text"`
}

// history is all that clients and watchers have seen.
type history struct {
	start time.Time
	mu    sync.Mutex

	Since      int64       `json:"since"`  // the revision at which there was nothing in the namespace but Before
	Before     []string    `json:"before"` // keys that stay as they are, whatever is done to others
	Until      int64       `json:"until"`  // of the last object, which every watch has to have told
	Operations []operation `json:"operations"`
	Sessions   []*session  `json:"sessions"`
	Excuses    []excuse    `json:"excuses"`
	Marks      []mark      `json:"marks,omitempty"`

	Ended time.Duration `json:"ended"` // when all was seen that would be
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) add(o operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Operations = append(h.Operations, o)
}

func (h *history) open(server string, watcher int, from int64) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &session{Server: server, Watcher: watcher, At: h.now(), From: from}
	h.Sessions = append(h.Sessions, s)
	return s
}

func (h *history) tell(s *session, e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.now()
	s.Events = append(s.Events, e)
}

// told is the highest revision that all of a number of watchers have come to.
func (h *history) told(watchers int) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	come := map[int]int64{}
	for _, s := range h.Sessions {
		come[s.Watcher] = max(come[s.Watcher], s.until())
	}
	if len(come) < watchers {
		return 0
	}
	low := int64(1 << 62)
	for _, revision := range come {
		low = min(low, revision)
	}
	return low
}

func (h *history) excuse(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Excuses = append(h.Excuses, excuse{server, h.now(), -1})
}

func (h *history) expect(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.Excuses {
		if e := &h.Excuses[i]; e.Server == server && e.To < 0 {
			e.To = h.now()
		}
	}
}

func (h *history) mark(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Marks = append(h.Marks, mark{h.now(), text})
}

// marked is what was done last before a time.
func (h *history) marked(at time.Duration) (last mark) {
	for _, m := range h.Marks {
		if m.At <= at {
			last = m
		}
	}
	return last
}
