package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const totals = `SELECT key, sum(n) AS value FROM (
	SELECT value->>'k' AS key, (value->>'n')::BIGINT AS n FROM src WHERE value IS NOT NULL
	UNION ALL SELECT key, value::BIGINT FROM state) GROUP BY key`

func record(k string, n int) endpoint.Record {
	return endpoint.Record{Key: "r", Value: fmt.Appendf(nil, `{"k":%q,"n":%d}`, k, n)}
}

// TestState checks that a flow's state passes from batch to batch. It may run in any process, and
// an error may occur in between. The flow must see the new state.
func TestState(t *testing.T) {
	compile := func() *Flow {
		f, err := CompileStateful(t.Context(), "SELECT key, value FROM state ORDER BY key", totals)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f, other := compile(), compile()
	var table exactlyonce.Table
	step := func(f *Flow, want string, records ...endpoint.Record) {
		t.Helper()
		rows, next, err := f.RunStateful(t.Context(), records, table)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Key+"="+string(r.Value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v, want %s", got, want)
		}
		table = next
	}
	step(f, "x=3 y=2", record("x", 1), record("y", 2), record("x", 2))
	step(other, "x=3 y=12", record("y", 10))
	step(f, "x=3 y=12")
	if table != `{"x":"3","y":"12"}` {
		t.Errorf("the table is %s", table)
	}
	odd := []endpoint.Record{{Value: []byte(`{"k":"x","n":"z"}`)}}
	if _, _, err := f.RunStateful(t.Context(), odd, table); exactlyonce.KindOf(err) != exactlyonce.Wrong ||
		!strings.Contains(err.Error(), "the state: ") {
		t.Errorf("a record that it cannot work with: %v", err)
	}
	for i := range 2 * renew {
		step(f, fmt.Sprintf("x=%d y=12", 4+i), record("x", 1))
	}
}

// TestStateRefuses checks that errors in the SELECT of a state say that they belong to the state.
func TestStateRefuses(t *testing.T) {
	const all = "SELECT key, value FROM state"
	for _, c := range []struct{ query, state, want string }{
		{all, "SELECT key FROM src", "the state: the flow: its SELECT needs exactly one column value, and has"},
		{all, "SELECT kye AS key, value FROM src", "the state: "},
		{all, "DROP TABLE state", "to be a SELECT"},
		{"SELECT x AS key, value FROM state", totals, "LINE 1"},
		{all, "SELECT 'a' AS key, unnest([1, 2]) AS value", "two rows with the key \"a\""},
		{all, "SELECT 'a' AS key, repeat('x', 70000) AS value", "more than 65536 bytes"},
		// the limit is for the table as JSON
		{all, "SELECT range AS key, repeat('\"', 20000) AS value FROM range(2)", "more than 65536 bytes"},
		{all, "", "state"},
	} {
		f, err := CompileStateful(t.Context(), c.query, c.state)
		if err == nil {
			f.Close()
			t.Errorf("%q with the state %q is taken", c.query, c.state)
		} else if !strings.Contains(err.Error(), c.want) || exactlyonce.KindOf(err) != exactlyonce.Wrong {
			t.Errorf("%q with the state %q: %v, want %q", c.query, c.state, err, c.want)
		}
	}
	f, err := CompileStateful(t.Context(), all, "SELECT * FROM state UNION ALL SELECT key, value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := f.RunStateful(t.Context(), nil, "7"); exactlyonce.KindOf(err) != exactlyonce.Refused {
		t.Errorf("a state that is none: %v", err)
	}
	// A row whose value is NULL is left out of the table. Another flow does not see this flow's
	// table.
	_, next, err := f.RunStateful(t.Context(), []endpoint.Record{{Key: "a", Deleted: true}, {Key: "b", Value: []byte("1")}}, "")
	if err != nil || next != `{"b":"1"}` {
		t.Errorf("%s, %v", next, err)
	}
}
