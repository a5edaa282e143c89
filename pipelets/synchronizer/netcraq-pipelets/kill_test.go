package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// workers are processes of the command, which the test starts and kills at random. Up to two of
// them run at a time, so that some overlap.
type workers struct {
	t       *testing.T
	file    string
	out     *syncbuffer.Buffer
	running []*exec.Cmd
	kills   int
}

func newWorkers(t *testing.T, file string) *workers {
	w := &workers{t: t, file: file, out: &syncbuffer.Buffer{}}
	t.Cleanup(func() {
		for _, c := range w.running {
			c.Process.Kill()
			c.Wait()
		}
	})
	return w
}

// step starts a process, or kills one.
func (w *workers) step() {
	if len(w.running) == 0 || len(w.running) == 1 && rand.IntN(2) == 0 {
		w.running = append(w.running, begin(w.t, w.out, "run", w.file))
		return
	}
	k := rand.IntN(len(w.running))
	w.running[k].Process.Kill()
	w.running[k].Wait()
	w.running = append(w.running[:k], w.running[k+1:]...)
	w.kills++
}

// settle ensures that exactly one process runs, and is not killed any more.
func (w *workers) settle() {
	if len(w.running) == 0 {
		w.step()
	}
}

// number writes numbered records to an etcd until ctx ends, and returns their number. It writes
// some of the records in one transaction. The server may be killed meanwhile. If the outcome of a
// write is unknown, number repeats the write, on the condition that the record does not exist.
func number(ctx context.Context, s *etcdServer, prefix string) (n int) {
	for ctx.Err() == nil {
		var ops []clientv3.Op
		some := 1 + rand.IntN(100)
		for i := range some {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%08d", prefix, n+i), fmt.Sprint(n+i)))
		}
		absent := clientv3.Compare(clientv3.CreateRevision(fmt.Sprintf("%s%08d", prefix, n)), "=", 0)
		// repeat until the record exists, because an earlier attempt may have succeeded or may
		// succeed later
		for done := false; !done; {
			c, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := s.Client.Txn(c).If(absent).Then(ops...).Commit()
			cancel()
			done = err == nil
		}
		n += some
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	return n
}

// torment starts and kills workers, and kills servers. It ends when the time is over and a worker
// and a server were killed at least once.
func torment(t *testing.T, all []*workers, servers []*etcdServer) (killed int) {
	spared := func(w *workers) bool { return w.kills == 0 }
	end := time.Now().Add(killsFor(t))
	for time.Now().Before(end) || killed == 0 || slices.ContainsFunc(all, spared) {
		for _, w := range all {
			if rand.IntN(2) == 0 {
				w.step()
			}
		}
		if rand.IntN(6) == 0 {
			s := servers[rand.IntN(len(servers))]
			s.Kill()
			s.Start()
			killed++
		}
		time.Sleep(time.Duration(50+rand.IntN(900)) * time.Millisecond)
	}
	for _, w := range all {
		w.settle()
	}
	return killed
}

// arrivals returns the keys in the order of their creation. It fails if a key was written twice.
func arrivals(t *testing.T, s *etcdServer, prefix string) (keys []string) {
	t.Helper()
	poll.Nil(t, time.Minute, "the destination's keys", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := s.Client.Get(ctx, prefix, clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return err
		}
		keys = keys[:0]
		for _, kv := range r.Kvs {
			if kv.Version != 1 {
				t.Fatalf("%s was written %d times", kv.Key, kv.Version)
			}
			keys = append(keys, strings.TrimPrefix(string(kv.Key), prefix)+"="+string(kv.Value))
		}
		return nil
	})
	return keys
}

// TestKillParquet copies numbered records from one etcd to a second, and through Parquet files to a
// third. It kills workers and servers at random. Each record must arrive once everywhere, in order.
func TestKillParquet(t *testing.T) {
	from, direct, to := newServer(t), newServer(t), newServer(t)
	lake := t.TempDir()
	const head = "apiVersion: netcraq.io/v1alpha1\nkind: Pipelet\nmetadata: {name: %s}\nspec:\n  eoio: true\n"
	const flow = "  flow: SELECT key, value FROM src WHERE value::BIGINT %% 2 = 0\n"
	first := newWorkers(t, file(t, head+flow+`
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}, {parquet: {path: %q}}]
`, "p1", from.Endpoint, direct.Endpoint, lake))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan int, 1)
	go func() { written <- number(ctx, from, "load/") }()
	var folder string
	first.step()
	poll.Until(t, 30*time.Second, "the first file", func() bool {
		all, _ := filepath.Glob(filepath.Join(lake, "default", "p1", "*"))
		if len(all) > 0 {
			folder = all[0]
		}
		return folder != ""
	})
	second := newWorkers(t, file(t, head+`
  src: [{parquet: {path: %q}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p2", folder, to.Endpoint))
	killed := torment(t, []*workers{first, second}, []*etcdServer{from, direct, to})
	cancel()
	n := <-written
	want := (n + 1) / 2
	check := func(where string, got []string) error {
		for i, k := range got {
			if w := fmt.Sprintf("%08d=%d", 2*i, 2*i); k != w {
				t.Fatalf("%s: record %d is %s, want %s", where, i, k, w)
			}
		}
		if len(got) != want {
			return fmt.Errorf("%s: %d of %d arrived", where, len(got), want)
		}
		return nil
	}
	logs := func() string { return first.out.String() + second.out.String() }
	for where, s := range map[string]*etcdServer{"etcd": direct, "etcd behind Parquet": to} {
		poll.Nil(t, time.Minute, where, func() error { return check(where, arrivals(t, s, "out/")) }, logs)
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(fmt.Sprintf(`SELECT key || '=' || value FROM read_parquet('%s/**/*.parquet', filename = true,
		file_row_number = true) ORDER BY filename, file_row_number`, lake))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
	}
	if err := check("Parquet by DuckDB", got); err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.parquet"))
	t.Logf("%d records, %d to each of three destinations, %d files; workers killed %d and %d times, servers %d times",
		n, want, len(files), first.kills, second.kills, killed)
	if first.kills == 0 || second.kills == 0 || killed == 0 || n < 100 {
		t.Error("too little happened")
	}
}
