package main

import (
	"sync"
	"time"
)

// kind is the kind of a request to an API server.
type kind string

// These are the kinds. Reads request the newest state, without a resourceVersion. They read one
// object, or all objects in the namespace, in one answer or in pages.
const (
	create kind = "create"
	update kind = "update" // an update of the version that the client has read
	patch  kind = "patch"  // a patch of any version
	remove kind = "delete"
	get    kind = "get"
	list   kind = "list"
)

func (k kind) writes() bool { return k != get && k != list }

// outcome is the result of a request, as far as its client knows it.
type outcome string

// These are the outcomes. If a request gets no clear answer, its outcome is unknown. The request
// may have been executed, or may be executed later.
const (
	done    outcome = "done"
	absent  outcome = "NotFound"
	exists  outcome = "AlreadyExists"
	differs outcome = "Conflict"
	unknown outcome = "unknown"
)

// state is the state of an object in an answer of an API server. The zero state means that the
// object does not exist.
type state struct {
	Found    bool   `json:"found,omitempty"`
	Value    string `json:"value,omitempty"`
	Revision int64  `json:"revision,omitempty"` // the object's resourceVersion
}

// operation is one request. Times are relative to the beginning of the history, on one clock.
type operation struct {
	Client int    `json:"client"`
	Server string `json:"server"`
	Kind   kind   `json:"kind"`
	Key    string `json:"key,omitempty"`
	// the written value, which is different for each write of the history
	Value    string        `json:"value,omitempty"`
	Expected int64         `json:"expected,omitempty"` // the version that an update expects
	Begin    time.Duration `json:"begin"`
	End      time.Duration `json:"end"`
	Outcome  outcome       `json:"outcome"`
	Error    string        `json:"error,omitempty"`
	// the state that a get has read or a write has written; empty for a deletion
	Read state `json:"read"`
	// All has the objects in the answer to a list. Revision is the list's revision, and About has
	// the keys whose absence counts.
	All      map[string]state `json:"all,omitempty"`
	Revision int64            `json:"revision,omitempty"`
	About    []string         `json:"about,omitempty"`
}

// event is an event of a watch. An event without a type is a bookmark: the watch has reported
// everything up to its revision.
type event struct {
	At       time.Duration `json:"at"`
	Type     string        `json:"type,omitempty"`
	Revision int64         `json:"revision"`
	Key      string        `json:"key,omitempty"`
	Value    string        `json:"value,omitempty"`
}

// session is one watch of the namespace. It must report all events after the revision From.
type session struct {
	Server  string        `json:"server"`
	Watcher int           `json:"watcher"`
	At      time.Duration `json:"at"`
	From    int64         `json:"from"`
	Events  []event       `json:"events"`
}

// until returns the revision up to which a session has reported all events.
func (s *session) until() int64 {
	if n := len(s.Events); n > 0 {
		return s.Events[n-1].Revision
	}
	return s.From
}

// excuse is the time of a fault on a server's node. During the fault, the server's watches may be
// late, but its answers must be right.
type excuse struct {
	Server string        `json:"server"`
	From   time.Duration `json:"from"`
	To     time.Duration `json:"to"` // -1 if the fault still lasts
}

// mark records an action on the cluster, and its time.
type mark struct {
	At   time.Duration `json:"at"`
	Text string        `json:"text"`
}

// history is everything that the clients and watchers have recorded.
type history struct {
	start time.Time
	mu    sync.Mutex

	// revision at which the namespace had only the objects in Before
	Since int64 `json:"since"`
	// keys of objects that existed before, and that the clients do not change
	Before []string `json:"before"`
	// revision of the last object, which every watch must report
	Until      int64       `json:"until"`
	Operations []operation `json:"operations"`
	Sessions   []*session  `json:"sessions"`
	Excuses    []excuse    `json:"excuses"`
	Marks      []mark      `json:"marks,omitempty"`

	Ended time.Duration `json:"ended"` // time at which the recording ended
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

// told returns the highest revision that all watchers have reported.
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

// marked returns the last mark before a time.
func (h *history) marked(at time.Duration) (last mark) {
	for _, m := range h.Marks {
		if m.At <= at {
			last = m
		}
	}
	return last
}
