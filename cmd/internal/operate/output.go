package operate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// show prints v as JSON if the user chose JSON, and otherwise calls text.
func (c *cli) show(v any, text func(w io.Writer)) error {
	if c.output == "json" {
		e := json.NewEncoder(c.std.Out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	text(c.std.Out)
	return nil
}

// table prints rows in columns; the first row is the heading.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = t.Flush() // only writing to standard output can fail, which cannot be reported
}

// failure is an error as JSON.
type failure struct {
	Kind           string `json:"kind"` // for example not_found, cas_failed, denied, timeout or usage
	Message        string `json:"message"`
	OutcomeUnknown bool   `json:"outcomeUnknown,omitempty"` // true if the write may have been executed
	*state                // state of the key if Kind is not_found or cas_failed
}

// state is the content of a key, as JSON.
type state struct {
	Version       string  `json:"version"`              // in the form "epoch.sequence"
	VersionNumber uint64  `json:"versionNumber,string"` // the version as one number
	Found         bool    `json:"found"`                // reports whether the key has a value
	Value         []byte  `json:"valueBase64,omitzero"` // set if Found is true, also for an empty value
	Text          *string `json:"valueText,omitempty"`  // the value as text, if it is printable
}

func stateOf(v wire.Version, value []byte, found bool) *state {
	s := &state{Version: v.String(), VersionNumber: uint64(v), Found: found}
	if found {
		s.Value = append([]byte{}, value...)
	}
	if found && wire.Printable(value) {
		t := string(value)
		s.Text = &t
	}
	return s
}

var kinds = []struct {
	err  error
	kind string
}{
	{client.ErrNotFound, "not_found"}, {client.ErrCASFailed, "cas_failed"}, {client.ErrTimeout, "timeout"}, {client.ErrCanceled, "canceled"},
	{client.ErrValueTooLarge, "value_too_large"}, {client.ErrNoChain, "no_chain"}, {client.ErrDenied, "denied"},
	{client.ErrBadSession, "bad_session"}, {client.ErrFull, "full"},
}

// silent is an error without a message.
type silent interface {
	error
	Silent() bool
}

func (c *cli) printError(err error) {
	if ill := (unwell{}); c.output == "json" && errors.As(err, &ill) {
		return // the report has already shown the problems
	}
	if s := silent(nil); errors.As(err, &s) && s.Silent() {
		return
	}
	if c.output != "json" {
		fmt.Fprintf(c.std.Err, "%s: %v\n", c.program.Name, err)
		return
	}
	f := failure{Kind: "error", Message: err.Error()}
	var usage usageError
	var op *client.OpError
	var a *admin.Error
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			f.Kind = k.kind
			break
		}
	}
	if errors.As(err, &op) {
		f.OutcomeUnknown = op.OutcomeUnknown
		if f.Kind == "cas_failed" || f.Kind == "not_found" && op.Op == wire.Read {
			f.state = stateOf(op.Version, op.Value, op.Found)
		}
	} else if errors.As(err, &a) {
		f.Kind = a.Code
	} else if errors.As(err, &usage) {
		f.Kind = "usage"
	} else if n := (*nodeapi.Error)(nil); errors.As(err, &n) {
		f.Kind, f.OutcomeUnknown = string(n.Code), n.Code == nodeapi.CodeOutcomeUnknown
	}
	_ = c.show(map[string]failure{"error": f}, nil)
}

// micros converts a duration to microseconds.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// short formats a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", micros(d))
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%.1f µs", micros(d))
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", micros(d))
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", micros(d)/1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// grouped formats a number with a comma after every three digits.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural returns a number with its noun, for example "1 packet" or "2 packets".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
