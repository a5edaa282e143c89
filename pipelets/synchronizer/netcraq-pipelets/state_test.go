package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// totals writes the file of a pipelet, which copies from an etcd to another etcd and to Parquet
// files. The state of the pipelet is a running count and sum of numbered records.
func totals(t *testing.T, from, to *etcdServer, lake string) (name string) {
	t.Helper()
	return file(t, head+`
  interval: 0.1
  state: |
    SELECT 'n' AS key, count(*) + coalesce((SELECT value::BIGINT FROM state WHERE key = 'n'), 0) AS value FROM src
    UNION ALL
    SELECT 'sum', coalesce(sum(value::BIGINT), 0) + coalesce((SELECT value::BIGINT FROM state WHERE key = 'sum'), 0) FROM src
  flow: |
    SELECT 'total' AS key, (SELECT value FROM state WHERE key = 'n') || ' ' || (SELECT value FROM state WHERE key = 'sum')
      || ' ' || (SELECT count(*) FROM src) AS value
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}, {parquet: {path: %q}}]
`, "p1", from.Endpoint, to.Endpoint, lake)
}

// checkTotals waits until both destinations of the pipelet of totals have counted n records. The
// etcd must have the sum of all records. Each file must have the sum of the records up to some
// record, and must continue where the previous file ends.
func checkTotals(t *testing.T, to *etcdServer, lake string, n int, logs func() string) (files int) {
	t.Helper()
	want := fmt.Sprintf("%d %d ", n, n*(n-1)/2)
	poll.Nil(t, time.Minute, "the etcd's total", func() error {
		c, done := context.WithTimeout(t.Context(), 5*time.Second)
		defer done()
		r, err := to.Client.Get(c, "out/total")
		if err == nil && (len(r.Kvs) == 0 || !strings.HasPrefix(string(r.Kvs[0].Value), want)) {
			err = fmt.Errorf("%v, want %s", r.Kvs, want)
		}
		return err
	}, logs)
	poll.Nil(t, time.Minute, "Parquet's totals", func() error {
		db, err := sql.Open("duckdb", "")
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.Query(fmt.Sprintf(`SELECT value FROM read_parquet('%s/**/*.parquet', filename = true) ORDER BY filename`,
			lake))
		if err != nil {
			return err
		}
		defer rows.Close()
		last := 0
		for files = 0; rows.Next(); files++ {
			var text string
			if err := rows.Scan(&text); err != nil {
				return err
			}
			var count, sum, window int
			if _, err := fmt.Sscan(text, &count, &sum, &window); err != nil {
				t.Fatal(err)
			}
			if count != last+window || sum != count*(count-1)/2 {
				t.Fatalf("file %d says %s behind %d records: the sum is to be %d", files, text, last, count*(count-1)/2)
			}
			last = count
		}
		if last != n {
			return fmt.Errorf("%d records are counted, there are %d", last, n)
		}
		return rows.Err()
	}, logs)
	return files
}

// TestKillState kills workers and servers at random. The destinations of the pipelet must be the
// same as if nothing had been killed.
func TestKillState(t *testing.T) {
	from, to := newServer(t), newServer(t)
	lake := t.TempDir()
	w := newWorkers(t, totals(t, from, to, lake))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()
	killed := torment(t, []*workers{w}, []*etcdServer{from, to})
	cancel()
	n := <-numbered
	files := checkTotals(t, to, lake, n, w.out.String)
	t.Logf("%d records in %d windows; workers killed %d times, servers %d", n, files, w.kills, killed)
	if w.kills == 0 || killed == 0 || files < 10 {
		t.Error("too little happened")
	}
}

// TestStateTooLarge checks that an invalid state is refused before the pipelet starts. A state that
// grows too large must stop the pipelet, with a condition that says so, until the SELECT is fixed.
// Nothing may be lost.
func TestStateTooLarge(t *testing.T) {
	from, to := newServer(t), newServer(t)
	text := func(state string) string {
		return fmt.Sprintf(head+`
  state: %s
  flow: SELECT 'n' AS key, count(*) AS value FROM state
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p1", state, from.Endpoint, to.Endpoint)
	}
	put := func(key string, size int) {
		t.Helper()
		if _, err := from.Client.Put(t.Context(), "load/"+key, strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, "out/n is "+want, func() error {
			r, err := to.Client.Get(t.Context(), "out/n")
			if err == nil && (len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want) {
				err = fmt.Errorf("%v", r.Kvs)
			}
			return err
		})
	}
	w := newWorkers(t, file(t, "%s", text("SELECT key, value FROM state UNION ALL SELECT key, value FROM src")))
	w.settle()
	for i := range 3 {
		put(fmt.Sprint(i), 20000)
		is(strconv.Itoa(i + 1))
	}
	put("3", 20000)
	poll.Until(t, 30*time.Second, "the condition", func() bool {
		return strings.Contains(w.out.String(), "reason=FlowFails") && strings.Contains(w.out.String(), "65536 bytes")
	})
	is("3")
	// The new worker's SELECT drops the rows that are not needed. The worker continues where the
	// last worker stopped.
	w.running[0].Process.Kill()
	w.running[0].Wait()
	w.running = nil
	w.file = file(t, "%s", text("SELECT key, left(value, 10) AS value "+
		"FROM (SELECT key, value FROM state UNION ALL SELECT key, value FROM src)"))
	w.settle()
	is("4")
	r, err := to.Client.Get(t.Context(), "netcraq.io/pipelets/default/p1/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatal(r, err)
	}
	var state struct{ Table map[string]string }
	if err := json.Unmarshal(r.Kvs[0].Value, &state); err != nil || len(state.Table) != 4 ||
		state.Table["3"] != strings.Repeat("x", 10) {
		t.Errorf("the destination has %s, %v", r.Kvs[0].Value, err)
	}
}

// TestWindowSplit checks a destination that cannot take all rows of a window at once. The window
// must arrive in parts without delay. The condition must report this until a window is complete
// again.
func TestWindowSplit(t *testing.T) {
	from, to := newServer(t), newServer(t)
	w := newWorkers(t, file(t, head+`
  interval: 1
  flow: SELECT key, count(*) AS value FROM src GROUP BY key
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p1", from.Endpoint, to.Endpoint))
	arrive := func(n int64) {
		t.Helper()
		poll.Nil(t, 30*time.Second, fmt.Sprint(n, " keys"), func() error {
			r, err := to.Client.Get(t.Context(), "out/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err == nil && r.Count != n {
				err = fmt.Errorf("there are %d", r.Count)
			}
			return err
		}, w.out.String)
	}
	for i := range 400 { // write all records before the worker starts, so that they are in one window
		if _, err := from.Client.Put(t.Context(), fmt.Sprintf("load/%03d", i), "1"); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	arrive(400)
	poll.Until(t, 10*time.Second, "the condition", func() bool {
		return strings.Contains(w.out.String(), "ready=true reason=WindowSplit")
	}, w.out.String)
	if strings.Contains(w.out.String(), "ready=false") {
		t.Errorf("it was not ready:\n%s", w.out.String())
	}
	said := len(w.out.String())
	if _, err := from.Client.Put(t.Context(), "load/400", "1"); err != nil {
		t.Fatal(err)
	}
	arrive(401)
	poll.Until(t, 10*time.Second, "a whole window", func() bool {
		return strings.Contains(w.out.String()[said:], "ready=true reason=Running")
	}, w.out.String)
}
