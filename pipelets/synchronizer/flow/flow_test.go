package flow

import (
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

func TestRun(t *testing.T) {
	records := []endpoint.Record{
		{Key: "b", Value: []byte(`{"k":"x","n":2}`), Version: 7},
		{Key: "a", Value: []byte(`{"k":"x","n":3}`), Version: 8},
		{Key: "c", Value: []byte(`{"k":"y","n":5}`), Version: 9},
		{Key: "d", Deleted: true, Version: 10},
		{Key: "e", Value: []byte{0xff, 0}, Version: 11},
	}
	for _, c := range []struct{ query, want string }{
		{"SELECT key, value FROM src WHERE version < 9 ;", `b={"k":"x","n":2} a={"k":"x","n":3}`},
		{`SELECT value->>'k' AS key, sum((value->>'n')::INT) AS value FROM src WHERE value IS NOT NULL
		  GROUP BY 1 ORDER BY 1`, "x=5 y=5"},
		{"SELECT key, bytes AS value FROM src WHERE key >= 'd'", "d- e=\xff\x00"},
		{"SELECT key, version AS value FROM src WHERE false", ""},
		{"WITH x AS (SELECT * FROM src) SELECT encode(key) AS key, version > 9 AS value, 1 AS n FROM x -- last",
			"b=false a=false c=false d=true e=true"},
		{"SELECT key, [version, 1] AS value FROM src WHERE key = 'a'", "a=[8, 1]"},
	} {
		f, err := Compile(t.Context(), c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		for range 3 { // run each batch three times
			rows, err := f.Run(t.Context(), records)
			var got []string
			for _, r := range rows {
				if r.Deleted {
					got = append(got, r.Key+"-")
				} else {
					got = append(got, r.Key+"="+string(r.Value))
				}
			}
			if strings.Join(got, " ") != c.want || err != nil {
				t.Errorf("%s: %q, %v, want %q", c.query, got, err, c.want)
			}
		}
		f.Close()
	}
}

// TestCompileRefuses checks that errors have a position, and that a flow can access only its batch.
func TestCompileRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret.csv")
	if err := os.WriteFile(file, []byte("key,value\na,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT key, value\nFROM src GROUPBY key":         "LINE 2",
		"SELECT kye AS key, value FROM src":               "LINE 1",
		"SELECT key FROM src":                             "one column value",
		"SELECT key, key, value FROM src":                 "one column key",
		"SELECT key, value FROM arrow_batch":              "arrow_batch",
		"SELECT key, value FROM other":                    "other",
		"INSERT INTO src VALUES (1)":                      "to be a SELECT",
		"DROP TABLE src":                                  "to be a SELECT",
		"SELECT key, value FROM src; SELECT 1":            "one SELECT",
		"SELECT key, value FROM src; DROP VIEW src":       "to be a SELECT",
		"ATTACH '" + dir + "/x.db'":                       "to be a SELECT",
		"SET threads = 8":                                 "to be a SELECT",
		"":                                                "to be a SELECT",
		fmt.Sprintf("SELECT * FROM read_csv('%s')", file): "disabled",
		fmt.Sprintf("SELECT * FROM '%s'", file):           "disabled",
		fmt.Sprintf("SELECT content AS key, content AS value FROM read_text('%s')", file): "disabled",
	} {
		f, err := Compile(t.Context(), query)
		if err == nil {
			f.Close()
			t.Errorf("%q is taken", query)
			continue
		}
		if exactlyonce.KindOf(err) != exactlyonce.Wrong || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", query, err, want)
		}
	}
}

// TestWrongRecord checks that a record that a flow cannot process is reported as Wrong, and that
// the next batch works.
func TestWrongRecord(t *testing.T) {
	f, err := Compile(t.Context(), "SELECT key, (value::INT + 1) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Run(t.Context(), []endpoint.Record{{Key: "a",
		Value: []byte("x")}}); exactlyonce.KindOf(err) != exactlyonce.Wrong {
		t.Errorf("%v", err)
	}
	rows, err := f.Run(t.Context(), []endpoint.Record{{Key: "a", Value: []byte("41")}})
	if err != nil || len(rows) != 1 || string(rows[0].Value) != "42" {
		t.Errorf("%v, %v", rows, err)
	}
}

// TestKeysOfBytes checks that a flow gets keys that are not UTF-8 as bytes. A flow that does not
// use the column for such keys must fail, so that two of them never become one key.
func TestKeysOfBytes(t *testing.T) {
	e, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	records := []endpoint.Record{{Key: "\xff", Value: []byte("1")}, {Key: "\xfe", Value: []byte("2")},
		{Key: "a", Value: []byte("3")}}
	for query, want := range map[string]string{
		"SELECT key_bytes AS key, value FROM src":                     "\xff=1 \xfe=2 a=3",
		"SELECT coalesce(key, hex(Key_Bytes)) AS key, value FROM src": "FF=1 FE=2 a=3",
		"SELECT key, value FROM src":                                  keyBytes,
		"SELECT * FROM src":                                           keyBytes,
		"SELECT key, count(*) AS value FROM src GROUP BY key":         keyBytes,
		"SELECT key, value FROM src WHERE key <> 'b'":                 keyBytes,
		"SELECT key, value FROM src -- not the column key_byte":       keyBytes,
	} {
		f, err := e.Compile(t.Context(), query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		rows, err := f.Run(t.Context(), records)
		var got []string
		for _, r := range rows {
			got = append(got, r.Key+"="+string(r.Value))
		}
		switch {
		case want == keyBytes:
			if exactlyonce.KindOf(err) != exactlyonce.Wrong || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), `"\xff"`) {
				t.Errorf("%s: %q, %v", query, got, err)
			}
			if rows, err := f.Run(t.Context(), records[2:]); err != nil || len(rows) != 1 {
				t.Errorf("%s: the next batch: %v, %v", query, rows, err)
			}
		case err != nil || strings.Join(got, " ") != want:
			t.Errorf("%s: %q, %v, want %q", query, got, err, want)
		}
	}
}

// TestEnvironment checks that a flow's result does not depend on the process's time zone and
// locale, so all replicas compute the same.
func TestEnvironment(t *testing.T) {
	const query = `SELECT 'a' AS key, '2026-03-29 00:30:00+00'::TIMESTAMPTZ::VARCHAR || ' ' ||
		year('2026-03-29 00:30:00+00'::TIMESTAMPTZ) || ' ' || '2026-01-01 00:00:00'::TIMESTAMPTZ::VARCHAR || ' ' ||
		current_setting('Calendar') AS value`
	const print = "NETCRAQ_FLOW_TEST_PRINT"
	if os.Getenv(print) != "" {
		f, err := Compile(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows, err := f.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", rows[0].Value)
		return
	}
	const want = "2026-03-29 00:30:00+00 2026 2026-01-01 00:00:00+00 gregorian\n"
	for _, env := range [][]string{{"TZ=America/New_York"}, {"TZ=Asia/Kolkata", "LC_ALL=th_TH.UTF-8"}} {
		c := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		c.Env = append(append(os.Environ(), print+"=1"), env...)
		out, err := c.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%v: %s, %v, want %s", env, out, err, want)
		}
	}
}

// TestLasts checks that flows continue to work while the table is renewed regularly, and while a
// DuckDB instance is replaced after an error.
func TestLasts(t *testing.T) {
	e, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	sum, err := e.Compile(t.Context(), "SELECT 'sum' AS key, sum(value::INT) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	names, err := e.Compile(t.Context(), "SELECT key, key AS value FROM src ORDER BY version DESC")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * renew {
		records := []endpoint.Record{{Key: "a", Value: fmt.Append(nil, i), Version: 1}, {Key: "b", Value: []byte("1"),
			Version: 2}}
		rows, _, err := sum.RunBatch(t.Context(), fmt.Sprint(i), records)
		if err != nil || len(rows) != 1 || string(rows[0].Value) != fmt.Sprint(i+1) {
			t.Fatalf("%d: %v, %v", i, rows, err)
		}
		// the batch has already been loaded, so no records are passed
		rows, _, err = names.RunBatch(t.Context(), fmt.Sprint(i), nil)
		if err != nil || len(rows) != 2 || rows[0].Key != "b" {
			t.Fatalf("%d: %v, %v", i, rows, err)
		}
		if i%100 == 0 {
			_, err := sum.Run(t.Context(), []endpoint.Record{{Key: "a", Value: []byte("x")}})
			if exactlyonce.KindOf(err) != exactlyonce.Wrong || !strings.Contains(err.Error(), "LINE 1: SELECT 'sum'") {
				t.Fatalf("%d: %v", i, err)
			}
		}
	}
}

// TestPlansAgree checks that a prepared statement returns the same result for each batch as a newly
// prepared statement.
func TestPlansAgree(t *testing.T) {
	e, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var flows []*Flow
	for _, q := range []string{
		"SELECT key, value FROM src WHERE version < 50",
		"SELECT key, value FROM src WHERE key >= 'k5' AND value IS NOT NULL ORDER BY version DESC",
		"SELECT key, count(*) AS value FROM src GROUP BY key ORDER BY key",
		"SELECT DISTINCT value AS key, deleted AS value FROM src WHERE value IS NOT NULL ORDER BY 1, 2",
		"SELECT a.key, b.version AS value FROM src a JOIN src b USING (key) ORDER BY 1, a.version, 2",
		"SELECT key, rank() OVER (PARTITION BY deleted ORDER BY key, version) AS value FROM src ORDER BY version",
		"SELECT 'n' AS key, sum(TRY_CAST(value AS BIGINT)) AS value FROM src HAVING count(*) > 3",
		"SELECT key, value FROM src WHERE key IN (SELECT key FROM src WHERE deleted) ORDER BY version LIMIT 5",
		"SELECT key, octet_length(bytes) AS value FROM src WHERE bytes <> ''::BLOB ORDER BY version",
		"SELECT key, value FROM src WHERE version = (SELECT max(version) FROM src)",
		"(SELECT key, '1' AS value FROM src WHERE NOT deleted) EXCEPT (SELECT key, '1' FROM src WHERE value > '7') ORDER BY 1",
		"SELECT key, min(version) || '-' || max(version) AS value FROM src WHERE version > 10 GROUP BY ALL ORDER BY 1",
	} {
		f, err := e.Compile(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		flows = append(flows, f)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for batch := range 100 {
		var records []endpoint.Record
		for i := range rng.IntN(1 + []int{3, 30, 300}[rng.IntN(3)]) {
			r := endpoint.Record{Key: fmt.Sprint("k", rng.IntN(1+rng.IntN(20))), Version: uint64(batch + i),
				Deleted: rng.IntN(5) == 0}
			if !r.Deleted {
				r.Value = [][]byte{fmt.Append(nil, rng.IntN(1<<(1+rng.IntN(60)))), []byte("x"), nil, {0xff}}[rng.IntN(4)]
			}
			records = append(records, r)
		}
		for _, f := range flows {
			got, _, err := f.RunBatch(t.Context(), fmt.Sprint(batch), records)
			if err != nil {
				t.Fatalf("%s: %v", f.query, err)
			}
			anew := &Flow{engine: e, query: f.query}
			want, err := anew.Run(t.Context(), records)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("batch %d, %s:\n%v, want\n%v", batch, f.query, got, want)
			}
		}
	}
}

// TestProcessorTime checks that RunBatch returns a flow's processor time. A busy machine and
// waiting must not change it. This must hold even if the flow fails.
func TestProcessorTime(t *testing.T) {
	const wait = 200 * time.Millisecond
	e, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text, err := duckdb.NewTypeInfo(duckdb.TYPE_VARCHAR)
	if err != nil {
		t.Fatal(err)
	}
	if err := duckdb.RegisterScalarUDF(e.conn, "waits", waits{text, wait}); err != nil {
		t.Fatal(err)
	}
	took := func(query string) (processor, wall time.Duration, err error) {
		t.Helper()
		f, err := e.Compile(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, processor, err = f.RunBatch(t.Context(), query, []endpoint.Record{{Key: "k", Value: []byte("v")}})
		return processor, time.Since(begin), err
	}
	if cpu, wall, err := took("SELECT key, waits(value) AS value FROM src"); err != nil || wall < wait || cpu > wait/2 {
		t.Errorf("a flow that waits: %v of %v, %v", cpu, wall, err)
	}
	const heavy = "(SELECT sum(a.range * b.range % 7) FROM range(20000) a, range(2000) b)"
	cpu, wall, err := took("SELECT key, " + heavy + " AS value FROM src WHERE value IS NOT NULL")
	if err != nil || cpu < 20*time.Millisecond || cpu > wall {
		t.Errorf("a flow that computes: %v of %v, %v", cpu, wall, err)
	}
	cpu, wall, err = took("SELECT key, CAST(value || " + heavy + " AS INTEGER) AS value FROM src")
	if err == nil || cpu < 20*time.Millisecond || cpu > wall {
		t.Errorf("a flow that computes, and fails: %v of %v, %v", cpu, wall, err)
	}
}

// waits is a DuckDB function that waits.
type waits struct {
	text duckdb.TypeInfo
	long time.Duration
}

func (w waits) Config() duckdb.ScalarFuncConfig {
	return duckdb.ScalarFuncConfig{InputTypeInfos: []duckdb.TypeInfo{w.text}, ResultTypeInfo: w.text, Volatile: true}
}

func (w waits) Executor() duckdb.ScalarFuncExecutor {
	return duckdb.ScalarFuncExecutor{RowExecutor: func(values []driver.Value) (any, error) {
		time.Sleep(w.long)
		return values[0], nil
	}}
}
