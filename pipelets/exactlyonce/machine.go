package exactlyonce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Position is how far a source was read: up to and with the record that it names. The zero Position
// is before the first one. A machine compares positions for equality only.
type Position struct {
	// Epoch names the source's life: a cluster's id, a stream's incarnation. In another one the
	// rest means nothing.
	Epoch string `json:"epoch,omitempty"`
	// Seq is a revision or an offset.
	Seq uint64 `json:"seq"`
	// Sub is the last record that was read of those with one Seq. "": all of them were.
	Sub string `json:"sub,omitempty"`
}

// positionText is a Position as destinations have it, in JSON.
type positionText struct {
	plainPosition
	// SubBase64 has Sub if it is not UTF-8: JSON text would replace its bytes.
	SubBase64 []byte `json:"subBase64,omitempty"`
}

type plainPosition Position

// MarshalJSON keeps every byte of Sub.
func (p Position) MarshalJSON() ([]byte, error) {
	text := positionText{plainPosition: plainPosition(p)}
	if !utf8.ValidString(p.Sub) {
		text.Sub, text.SubBase64 = "", []byte(p.Sub)
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads MarshalJSON's format.
func (p *Position) UnmarshalJSON(b []byte) error {
	var text positionText
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	if *p = Position(text.plainPosition); len(text.SubBase64) > 0 {
		p.Sub = string(text.SubBase64)
	}
	return nil
}

// State is a destination's state of a pipelet.
type State struct {
	Position Position `json:"position"`
	// Rows were written in all.
	Rows uint64 `json:"rows"`
	// Table is the table that the pipelet's flow keeps from batch to batch.
	Table Table `json:"table,omitempty"`
}

// Table is JSON text. It can be compared, so that a State can.
type Table string

// MarshalJSON has the text be as it is.
func (t Table) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// UnmarshalJSON takes any JSON.
func (t *Table) UnmarshalJSON(b []byte) error {
	*t = Table(b)
	return nil
}

// Kind is the meaning of an error for the worker.
type Kind int

// The kinds of errors.
const (
	// Temporary: it may go well if it is tried again. Nothing was changed.
	Temporary Kind = iota
	// Unknown: a commit may have been done, and may be done yet.
	Unknown
	// Conflict: the destination's position differs from the one that the worker began from.
	Conflict
	// TooLarge: the destination does not accept so many rows in one transaction.
	TooLarge
	// Wrong: the flow fails with these records.
	Wrong
	// Refused: the store does not do this, and says why. Somebody has to change something.
	Refused
)

var kinds = map[Kind]string{
	Temporary: "Unavailable", Unknown: "OutcomeUnknown", Conflict: "AnotherWorker",
	TooLarge: "BatchTooLarge", Wrong: "FlowFails", Refused: "Refused",
}

// String is the kind as a condition's reason.
func (k Kind) String() string { return kinds[k] }

// Fault is an error whose meaning is known.
type Fault struct {
	Kind Kind
	Err  error
}

// Error describes the error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Errorf makes a fault.
func Errorf(k Kind, format string, args ...any) error {
	return &Fault{k, fmt.Errorf(format, args...)}
}

// KindOf returns the meaning of an error. One that is not a Fault is Temporary, and of a commit
// Unknown.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Kind
	}
	return Temporary
}

// Do is a worker's next action.
type Do int

// The actions.
const (
	// Open asks the destination for its State.
	Open Do = iota
	// Read reads records after Action.From, Action.Max at most. It waits until there are some.
	Read
	// Flow makes rows of the records that were read, and of Action.Was.Table the next one.
	Flow
	// Commit writes the rows and Action.Next, if the destination's State is Action.Was.
	Commit
	// Wait lets time pass.
	Wait
)

// Action is one step.
type Action struct {
	Do   Do
	From Position
	Max  int
	Was  State
	Next State
	For  time.Duration
}

// Result is the result of a step.
type Result struct {
	State   State    // Open
	To      Position // Read: of the last record
	Records int      // Read: 0: there were none until the worker stopped waiting
	Part    bool     // Read: they are not all of their interval's
	Gap     string   // Read: what of the source's history is missing before one of them, or, of none, the next
	Rows    int      // Flow
	Table   Table    // Flow
	Err     error
}

// Condition says in words how a worker is. One that is Ready has a message where something is to
// be known.
type Condition struct {
	Ready   bool
	Reason  string
	Message string
}

// Config says how a machine works.
type Config struct {
	Max     int           // records of a batch at most
	First   time.Duration // the pause after a first failure, doubled with each one to Longest
	Longest time.Duration
}

// Machine is a worker's state: of one pipelet, one source and one destination.
type Machine struct {
	cfg      Config
	do       Do
	known    State
	read     Result
	rows     int
	table    Table
	part     bool // the batch that was written last was
	gap      string
	max      int
	failures int
	pause    time.Duration
	cond     Condition
}

// New makes a machine. It begins by asking the destination.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, max: cfg.Max, cond: Condition{Reason: "Starting"}}
}

// Condition is its condition.
func (m *Machine) Condition() Condition { return m.cond }

// Known is the destination's state as far as the machine knows it.
func (m *Machine) Known() State { return m.known }

// Next returns the next action.
func (m *Machine) Next() Action {
	if m.pause > 0 {
		return Action{Do: Wait, For: m.pause}
	}
	switch m.do {
	case Read:
		return Action{Do: Read, From: m.known.Position, Max: m.max}
	case Flow:
		return Action{Do: Flow, Was: m.known}
	case Commit:
		return Action{Do: Commit, Was: m.known, Next: m.next()}
	default:
		return Action{Do: m.do}
	}
}

func (m *Machine) next() State {
	return State{Position: m.read.To, Rows: m.known.Rows + uint64(m.rows), Table: m.table}
}

// Done takes how the last action went.
func (m *Machine) Done(a Action, r Result) {
	if a.Do == Wait {
		m.pause = 0
		return
	}
	if r.Err != nil {
		m.failed(a, r.Err)
		return
	}
	switch a.Do {
	case Open:
		m.known = r.State
		m.do = Read
		if m.failures == 0 {
			m.well()
		}
	case Read:
		if r.Records == 0 { // until then the pipelet is idle, which is well
			m.gap = cmp.Or(r.Gap, m.gap)
			m.well()
			return
		}
		m.read = r
		m.do = Flow
	case Flow:
		m.rows, m.table = r.Rows, r.Table
		m.do = Commit
	case Commit:
		m.known, m.part, m.gap = a.Next, m.read.Part, cmp.Or(m.read.Gap, m.gap)
		// Slowly: where a destination takes no more, a batch that does not fit is work in vain.
		m.max = min(m.cfg.Max, m.max+m.max/8+1)
		m.do = Read
		m.well()
	}
}

func (m *Machine) well() {
	m.failures = 0
	m.cond = Condition{Ready: true, Reason: "Running"}
	switch {
	case m.part:
		m.cond.Reason, m.cond.Message = WindowSplit, "of the last interval came more records than a window has, or "+
			"made more rows than the destination takes at once: the flow saw them in parts"
	case m.gap != "":
		m.cond.Reason, m.cond.Message = HistoryCompacted, m.gap
	}
}

// WindowSplit is the reason of a worker that runs, and has a window in parts.
const WindowSplit = "WindowSplit"

// HistoryCompacted is the reason of a running worker whose source lacked a part that the worker had
// yet to read. It stays until the worker ends.
const HistoryCompacted = "HistoryCompacted"

// failed handles a step that went wrong.
func (m *Machine) failed(a Action, err error) {
	kind := KindOf(err)
	_, said := errors.AsType[*Fault](err)
	if a.Do == Commit && !said {
		kind = Unknown
	}
	switch {
	case kind == TooLarge && m.read.Records > 1:
		m.max = max(1, m.read.Records/2)
		m.do = Read
		return
	case a.Do == Commit && (kind == Unknown || kind == Conflict):
		m.do = Open
	case a.Do == Commit || a.Do == Flow:
		m.do = Read // the records are read again: what was made of them is released
	}
	m.cond = Condition{Reason: kind.String(), Message: err.Error()}
	m.pause = m.cfg.Longest
	if m.failures < 20 {
		m.pause = min(m.cfg.First<<m.failures, m.cfg.Longest)
	}
	m.failures++
}
