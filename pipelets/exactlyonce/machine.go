package exactlyonce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Position is the place up to which a source was read, including the record that it names. The zero
// Position is before the first record. A machine compares positions only for equality.
type Position struct {
	// Epoch identifies the source's lifetime: a cluster's id, a stream's incarnation. Other fields
	// are valid only within it.
	Epoch string `json:"epoch,omitempty"`
	// Seq is a revision or an offset.
	Seq uint64 `json:"seq"`
	// Sub is the last read record among those that share Seq. "": all of them were read.
	Sub string `json:"sub,omitempty"`
}

// positionText is the JSON form of a Position in destinations.
type positionText struct {
	plainPosition
	// SubBase64 is Sub if Sub is not UTF-8, because JSON text would replace its bytes.
	SubBase64 []byte `json:"subBase64,omitempty"`
}

type plainPosition Position

// MarshalJSON preserves every byte of Sub.
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

// State is a pipelet's state in a destination.
type State struct {
	Position Position `json:"position"`
	// Rows is the total number of written rows.
	Rows uint64 `json:"rows"`
	// Table is the table that the pipelet's flow keeps from batch to batch.
	Table Table `json:"table,omitempty"`
}

// Table is JSON text. It is a string, so that States are comparable.
type Table string

// MarshalJSON returns the text unchanged.
func (t Table) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// UnmarshalJSON accepts any JSON.
func (t *Table) UnmarshalJSON(b []byte) error {
	*t = Table(b)
	return nil
}

// Kind is the meaning of an error for the worker.
type Kind int

// The kinds of errors.
const (
	// Temporary: another attempt may succeed. Nothing was changed.
	Temporary Kind = iota
	// Unknown: the commit may have succeeded, or may succeed later.
	Unknown
	// Conflict: the destination's position differs from the one that the worker began from.
	Conflict
	// TooLarge: the destination does not accept so many rows in one transaction.
	TooLarge
	// Wrong: the flow fails with these records.
	Wrong
	// Refused: the store cannot do this, and the error says why. A person must change something.
	Refused
)

var kinds = map[Kind]string{
	Temporary: "Unavailable", Unknown: "OutcomeUnknown", Conflict: "AnotherWorker",
	TooLarge: "BatchTooLarge", Wrong: "FlowFails", Refused: "Refused",
}

// String is the condition's reason for the kind.
func (k Kind) String() string { return kinds[k] }

// Fault is an error with a kind.
type Fault struct {
	Kind Kind
	Err  error
}

// Error describes the error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Errorf makes a Fault.
func Errorf(k Kind, format string, args ...any) error {
	return &Fault{k, fmt.Errorf(format, args...)}
}

// KindOf returns the kind of an error. An error that is not a Fault is Temporary; if a commit
// failed, the caller treats it as Unknown.
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
	// Open reads the destination's State.
	Open Do = iota
	// Read reads at most Action.Max records after Action.From. It waits until there are some.
	Read
	// Flow computes rows from the read records, and the next table from Action.Was.Table.
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

// Result is the result of an action.
type Result struct {
	State   State    // Open: the destination's State
	To      Position // Read: position of the last record
	Records int      // Read: 0: none came before the timeout
	Part    bool     // Read: these are not all records of their interval
	Gap     string   // Read: missing part of the source's history, as text
	Rows    int      // Flow: number of rows
	Table   Table    // Flow: the next table
	Err     error
}

// Condition describes a worker's state. A Ready one has a message if there is something to report.
type Condition struct {
	Ready   bool
	Reason  string
	Message string
}

// Config configures a Machine.
type Config struct {
	Max     int           // maximum number of records of a batch
	First   time.Duration // pause after a first failure; doubles with each failure, up to Longest
	Longest time.Duration
}

// Machine is the state of a worker for one pipelet, one source and one destination.
type Machine struct {
	cfg      Config
	do       Do
	known    State
	read     Result
	rows     int
	table    Table
	part     bool // Result.Part of the last written batch
	gap      string
	max      int
	failures int
	pause    time.Duration
	cond     Condition
}

// New makes a machine. Its first action is Open.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, max: cfg.Max, cond: Condition{Reason: "Starting"}}
}

// Condition is the worker's condition.
func (m *Machine) Condition() Condition { return m.cond }

// Known is the destination's last known state.
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

// Done receives the result of the last action.
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
		if r.Records == 0 { // an idle pipelet is healthy
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
		// Grow slowly: if the destination has a limit, each batch above it is wasted work.
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

// WindowSplit is the reason of a running worker that got a window in parts.
const WindowSplit = "WindowSplit"

// HistoryCompacted is the reason of a running worker whose source has lost records that the worker
// had not read. It stays until the worker ends.
const HistoryCompacted = "HistoryCompacted"

// failed handles a failed action.
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
		m.do = Read // the records are read again, because the result of the flow is not kept
	}
	m.cond = Condition{Reason: kind.String(), Message: err.Error()}
	m.pause = m.cfg.Longest
	if m.failures < 20 {
		m.pause = min(m.cfg.First<<m.failures, m.cfg.Longest)
	}
	m.failures++
}
