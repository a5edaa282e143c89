package exactlyonce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Position is a position in a source, just after the last record that was read. The zero Position
// is before the first record. A machine compares positions only for equality.
type Position struct {
	// Epoch identifies the lifetime of the source, for example by a cluster's id or a stream's
	// incarnation. The other fields are valid only within it.
	Epoch string `json:"epoch,omitempty"`
	// Seq is a revision or an offset, depending on the source.
	Seq uint64 `json:"seq"`
	// Sub identifies the last record that was read, if several records have the same Seq. An empty
	// Sub means that all of them were read.
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

// State is what a destination stores for a pipelet.
type State struct {
	Position Position `json:"position"`
	// Rows is the total number of rows written to the destination.
	Rows uint64 `json:"rows"`
	// Table is the content of the table that the pipelet's flow keeps from batch to batch.
	Table Table `json:"table,omitempty"`
}

// Table is the JSON text of a table. It is a string, so that States are comparable.
type Table string

// MarshalJSON returns the text unchanged.
func (t Table) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// UnmarshalJSON accepts any JSON.
func (t *Table) UnmarshalJSON(b []byte) error {
	*t = Table(b)
	return nil
}

// Kind says what an error means for the worker.
type Kind int

// The kinds of errors.
const (
	// Temporary means that another attempt may succeed. Nothing was changed.
	Temporary Kind = iota
	// Unknown means that the commit may have succeeded, or may still succeed later.
	Unknown
	// Conflict means that the position in the destination is not the one from which the worker
	// began.
	Conflict
	// TooLarge means that the destination does not accept so many rows in one transaction.
	TooLarge
	// Wrong means that the flow fails with these records.
	Wrong
	// Refused means that the store cannot do this until a person changes something. The error says
	// why.
	Refused
)

var kinds = map[Kind]string{
	Temporary: "Unavailable", Unknown: "OutcomeUnknown", Conflict: "AnotherWorker",
	TooLarge: "BatchTooLarge", Wrong: "FlowFails", Refused: "Refused",
}

// String returns the kind in the format of a condition's reason.
func (k Kind) String() string { return kinds[k] }

// Fault is an error together with its kind.
type Fault struct {
	Kind Kind
	Err  error
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Errorf makes a Fault with a formatted message.
func Errorf(k Kind, format string, args ...any) error {
	return &Fault{k, fmt.Errorf(format, args...)}
}

// KindOf returns the kind of an error. An error that is not a Fault is Temporary. If such an error
// comes from a commit, the caller must treat it as Unknown.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Kind
	}
	return Temporary
}

// Do is a worker's next action.
type Do int

// These are the actions of a worker.
const (
	// Open reads the destination's State.
	Open Do = iota
	// Read reads records after Action.From, at most Action.Max. It waits until there are records.
	Read
	// Flow computes rows from the records that were read. It also computes the next table from
	// Action.Was.Table.
	Flow
	// Commit writes the rows and Action.Next, if the State in the destination is Action.Was.
	Commit
	// Wait pauses before the next action.
	Wait
)

// Action is one action of a worker, with its arguments.
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
	State   State    // after Open: the State in the destination
	To      Position // after Read: the position of the last record
	Records int      // after Read: number of records; 0 means that none came before the timeout
	Part    bool     // after Read: the records are only a part of their window
	Gap     string   // after Read: describes a missing part of the source's history; empty if nothing is missing
	Rows    int      // after Flow: number of rows
	Table   Table    // after Flow: the next table
	Err     error
}

// Condition describes the state of a worker. A Ready condition has a message only if there is
// something to report.
type Condition struct {
	Ready   bool
	Reason  string
	Message string
}

// Config configures a Machine.
type Config struct {
	Max     int           // maximum number of records of a batch
	First   time.Duration // the pause after a first failure; it doubles with each further failure, up to Longest
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
	part     bool // Result.Part of the batch that was written last
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

// Condition returns the present condition of the worker.
func (m *Machine) Condition() Condition { return m.cond }

// Known returns the State that the destination had when the worker last read or wrote it.
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
		if r.Records == 0 { // no records means that the pipelet is idle, so it is healthy
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
		// Increase the batch size slowly. If the destination has a limit, each batch above the
		// limit is wasted work.
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

// WindowSplit is the reason in the condition of a running worker that got a window in parts.
const WindowSplit = "WindowSplit"

// HistoryCompacted is the reason in the condition of a running worker whose source has lost records
// that the worker had not read. The reason stays until the worker ends.
const HistoryCompacted = "HistoryCompacted"

// failed chooses the next action after an action has failed.
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
		m.do = Read // read the records again, because the result of the flow is not kept
	}
	m.cond = Condition{Reason: kind.String(), Message: err.Error()}
	m.pause = m.cfg.Longest
	if m.failures < 20 {
		m.pause = min(m.cfg.First<<m.failures, m.cfg.Longest)
	}
	m.failures++
}
