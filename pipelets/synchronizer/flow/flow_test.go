package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
)

func TestRun(t *testing.T) {
	records := []store.Record{
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
	} {
		f, err := Compile(t.Context(), c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		for range 3 { // each batch anew
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

// What is wrong is said, where it is; and a flow gets at nothing but its batch.
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
		if core.KindOf(err) != core.Wrong || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", query, err, want)
		}
	}
}

// A record that a flow cannot work with is said to be wrong; the next batch is well.
func TestWrongRecord(t *testing.T) {
	f, err := Compile(t.Context(), "SELECT key, (value::INT + 1) AS value FROM src")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Run(t.Context(), []store.Record{{Key: "a", Value: []byte("x")}}); core.KindOf(err) != core.Wrong {
		t.Errorf("%v", err)
	}
	rows, err := f.Run(t.Context(), []store.Record{{Key: "a", Value: []byte("41")}})
	if err != nil || len(rows) != 1 || string(rows[0].Value) != "42" {
		t.Errorf("%v, %v", rows, err)
	}
}
