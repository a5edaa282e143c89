package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql/pgtest"
)

// TestConditions checks that a worker reports each fault clearly and continues. The faults are a
// missing table, a changed table, a record that the flow cannot process, a dead server of the
// destination or the source, and a folder on a full disk. When the cause is gone, each record must
// have arrived once.
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
	// A changed flow needs a restart. The next record is still the one that failed.
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
	// the new disk is empty, so the pipelet starts from the beginning and fills it
	poll.Until(t, 60*time.Second, "the disk is full", func() bool {
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

// lakeRows returns the number of rows and the number of different keys, as text.
func lakeRows(lake string) (text string, err error) {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRow(fmt.Sprintf("SELECT count(*) || ' ' || count(DISTINCT key) FROM '%s/**/*.parquet'", lake)).Scan(&text)
	return text, err
}

// TestFlowDies checks a record that overflows DuckDB's stack in the flow of one pipelet. It must
// become a condition of that pipelet, which names the remedy. The command and the other pipelets
// over the same source must continue. A flow's output must not appear in the command's log. With a
// fixed flow, the next record must arrive.
func TestFlowDies(t *testing.T) {
	endpoint, c := cluster(t)
	text := ""
	for name, flow := range map[string]string{"bad": "SELECT key, json_structure(value) AS value FROM src",
		"good": "SELECT key, length(value) AS value FROM src",
		"loud": "SELECT key, 'x' || n AS value FROM src, (SELECT count(*) AS n FROM enable_logging(storage = 'stdout'))"} {
		text += fmt.Sprintf("---\n"+head+"  flow: %s\n  src: [{etcd: {endpoints: [%q], prefix: load/}}]\n"+
			"  dst: [{etcd: {endpoints: [%q], prefix: %s/}}]\n", name, flow, endpoint, endpoint, name)
	}
	w := newWorkers(t, file(t, "%s", text))
	put := func(key, value string) {
		t.Helper()
		if _, err := c.Put(t.Context(), "load/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(key, want string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, key, func() error {
			r, err := c.Get(t.Context(), key)
			if err == nil && (r.Count == 0 || want != "" && string(r.Kvs[0].Value) != want) {
				err = fmt.Errorf("%s is %v", key, r.Kvs)
			}
			return err
		}, w.out.String)
	}
	put("1", "{}")
	w.step()
	process := w.running[0]
	for key, want := range map[string]string{"bad/1": `"JSON"`, "good/1": "2", "loud/1": ""} {
		arrives(key, want)
	}
	put("2", strings.Repeat("[", 400<<10)+strings.Repeat("]", 400<<10))
	arrives("good/2", fmt.Sprint(800<<10))
	poll.Until(t, 30*time.Second, "a condition", func() bool {
		for _, line := range strings.Split(w.out.String(), "\n") {
			if strings.Contains(line, "reason=FlowFails") && strings.Contains(line, "pipelet=default/bad") &&
				strings.Contains(line, "its process ended") && strings.Contains(line, "Change the flow") {
				return true
			}
		}
		return false
	}, w.out.String)
	put("3", "[1]")
	arrives("good/3", "3")
	arrives("loud/3", "")
	if err := process.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the command has ended: %v", err)
	}
	if out := w.out.String(); strings.Contains(out, "QueryLog") || strings.Contains(out, "SELECT") {
		t.Errorf("the log has what a flow prints: %s", out)
	}
	var flows []string // the processes for flows that the command has started
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process.Process.Pid))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		flows = append(flows, strings.Fields(string(pids))...)
	}
	process.Process.Kill()
	process.Wait()
	w.running = nil
	poll.Until(t, 20*time.Second, "the flows' processes end", func() bool {
		return len(flows) > 0 && !slices.ContainsFunc(flows, func(pid string) bool {
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			return strings.Contains(string(name), "flow-process")
		})
	}, func() string { return fmt.Sprint(flows) })
	w.file = file(t, "%s", strings.Replace(text, "json_structure(value) AS value FROM src",
		"json_structure(value) AS value FROM src WHERE length(value) < 1000", 1))
	w.settle()
	arrives("bad/3", `["UBIGINT"]`)
}
