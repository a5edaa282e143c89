package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store/postgresql/pgtest"
)

// What goes wrong is said in words by a worker that goes on: a table that is not there, one that is
// changed, a record that the flow cannot work with, a destination's server and a source's that are
// gone, a folder whose disk is full. When the cause is gone each record has arrived, once.
func TestConditions(t *testing.T) {
	from, to := newServer(t), pgtest.New(t)
	lake := t.TempDir()
	w := newWorkers(t, file(t, head+`
  flow: SELECT key, value::INT AS value FROM src WHERE value IS NOT NULL
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{postgresql: {address: %q, database: postgres, table: dst, append: true}}, {parquet: {path: %q}}]
`, "p1", from.Endpoint, to.Address, lake))
	n := 0
	put := func(value string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, "a put", func() error {
			_, err := from.Client.Put(t.Context(), fmt.Sprintf("load/%03d", n), value)
			return err
		})
		n++
	}
	said := 0
	says := func(what, reason, words string) {
		t.Helper()
		poll.Until(t, 40*time.Second, what, func() bool {
			for _, line := range strings.Split(w.out.String()[said:], "\n") {
				if strings.Contains(line, "ready=false reason="+reason) && strings.Contains(line, words) {
					return true
				}
			}
			return false
		}, w.out.String)
		said = len(w.out.String())
	}
	arrive := func(what string) {
		t.Helper()
		poll.Nil(t, 40*time.Second, what, func() error {
			var got string
			c := to.Connect()
			defer c.Close(t.Context())
			if err := c.QueryRow(t.Context(), "SELECT string_agg(key, ' ' ORDER BY id) FROM dst").Scan(&got); err != nil {
				return err
			}
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf("%03d", i))
			}
			if got != strings.Join(want, " ") {
				return fmt.Errorf("there is %s, want %v", got, want)
			}
			return nil
		}, w.out.String)
	}
	put("0")
	w.settle()
	says("no table", "Refused", "CREATE TABLE")
	to.Do("CREATE TABLE dst (key text NOT NULL, value text, id bigserial)")
	arrive("with the table")
	to.Do("ALTER TABLE dst RENAME value TO amount")
	put("1")
	says("another schema", "Refused", "value")
	to.Do("ALTER TABLE dst RENAME amount TO value", "ALTER TABLE dst ALTER value TYPE int USING value::int")
	arrive("with another type, which the values have")
	to.Kill()
	put("2")
	says("no server", "Unavailable", "")
	to.Start()
	arrive("with the server")
	from.Kill()
	says("no source", "Unavailable", "")
	from.Start()
	put("3")
	arrive("with the source")
	put("x")
	says("a record of another type", "FlowFails", "Could not convert string 'x'")
	// Whoever changes the flow starts it anew; the record is still the next one.
	w.running[0].Process.Kill()
	w.running[0].Wait()
	w.running = nil
	text, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	w.file = file(t, "%s", strings.Replace(string(text), "value::INT", "coalesce(TRY_CAST(value AS INT), -1)", 1))
	w.settle()
	arrive("with another flow")

	if err := syscall.Mount("tmpfs", lake, "tmpfs", 0, "size=64k"); err != nil {
		t.Logf("not tried: a full disk needs the right to mount one: %v", err)
		return
	}
	t.Cleanup(func() { syscall.Unmount(lake, syscall.MNT_DETACH) })
	files := func() int {
		all, _ := filepath.Glob(filepath.Join(lake, "default", "p1", "*", "*.parquet"))
		return len(all)
	}
	poll.Until(t, 60*time.Second, "the disk is full", func() bool { // it is empty now, so the pipelet begins anew there
		put("7")
		return strings.Contains(w.out.String()[said:], "disk is full")
	}, w.out.String)
	before := files()
	if err := syscall.Mount("", lake, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 40*time.Second, "more files", func() bool { return files() > before }, w.out.String)
	arrive("beside a disk that was full")
	poll.Nil(t, 40*time.Second, "Parquet's rows", func() error {
		got, err := lakeRows(lake)
		if err == nil && got != fmt.Sprintf("%d %d", n, n) {
			err = fmt.Errorf("rows and keys are %s, want %d", got, n)
		}
		return err
	}, w.out.String)
}

// lakeRows says how many rows and how many keys there are.
func lakeRows(lake string) (text string, err error) {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRow(fmt.Sprintf("SELECT count(*) || ' ' || count(DISTINCT key) FROM '%s/**/*.parquet'", lake)).Scan(&text)
	return text, err
}
