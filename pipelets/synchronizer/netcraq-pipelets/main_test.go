package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

func TestMain(m *testing.M) {
	if os.Getenv("NETCRAQ_PIPELETS_TEST_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	if spec := os.Getenv("NETCRAQ_PIPELETS_TEST_ETCD"); spec != "" {
		serve(spec)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// cluster starts an etcd, and returns its address and a client.
func cluster(t *testing.T) (endpoint string, c *clientv3.Client) {
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), LogLevel: "error"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s.Endpoint(), c
}

func file(t *testing.T, format string, args ...any) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipelet.yaml")
	if err := os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// begin starts the command with the given arguments.
func begin(t *testing.T, out *syncbuffer.Buffer, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "NETCRAQ_PIPELETS_TEST_COMMAND=1")
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

const pipelet = `apiVersion: netcraq.io/v1alpha1
kind: Pipelet
metadata: {name: p1}
spec:
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: c1/}}]
  flow: |
    SELECT 'even/' || key AS key, value || '@' || version AS value
    FROM src WHERE value::BIGINT %% 2 = 0
  eoio: true
`

// TestKill copies numbered records from one cluster to another. It kills the worker at random, and
// runs two workers for a while. Each record must arrive once, in order, with the source's version.
func TestKill(t *testing.T) {
	from, source := cluster(t)
	to, dest := cluster(t)
	name := file(t, pipelet, from, to)
	ctx := t.Context()
	const records = 4000
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := dest.Watch(watching, "c1/", clientv3.WithPrefix(), clientv3.WithRev(1))
	written := make(chan error, 1)
	revisions := make([]int64, records)
	go func() {
		for i := 0; i < records; {
			var ops []clientv3.Op
			n := min(1+rand.IntN(100), records-i)
			for k := range n {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("load/%05d", i+k), fmt.Sprint(i+k)))
			}
			r, err := source.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				written <- err
				return
			}
			for k := range n {
				revisions[i+k] = r.Header.Revision
			}
			i += n
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		}
		written <- nil
	}()
	out := &syncbuffer.Buffer{}
	var running []*exec.Cmd
	kills, done := 0, false
	defer func() {
		for _, c := range running {
			c.Process.Kill()
			c.Wait()
		}
	}()
	next := time.After(0)
	got := 0
	limit := time.After(90 * time.Second)
	for got < records/2 || !done {
		select {
		case err := <-written:
			if done = true; err != nil {
				t.Fatal(err)
			}
		case r := <-watch:
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events {
				i := 2 * got
				if key := fmt.Sprintf("c1/even/%05d", i); string(e.Kv.Key) != key || !e.IsCreate() {
					t.Fatalf("%s (created: %v), want %s as the next\n%s", e.Kv.Key, e.IsCreate(), key, out)
				}
				if v := fmt.Sprintf("%d@", i); !strings.HasPrefix(string(e.Kv.Value), v) {
					t.Fatalf("%s: %s, want %s and a version", e.Kv.Key, e.Kv.Value, v)
				}
				got++
			}
		case <-next: // start another worker, or kill one
			if len(running) < 2 && (len(running) == 0 || rand.IntN(2) == 0) {
				running = append(running, begin(t, out, "run", name))
			} else {
				k := rand.IntN(len(running))
				running[k].Process.Kill()
				running[k].Wait()
				running = append(running[:k], running[k+1:]...)
				kills++
			}
			next = time.After(time.Duration(50+rand.IntN(700)) * time.Millisecond)
		case <-limit:
			t.Fatalf("%d of %d arrived with %d kills\n%s", got, records/2, kills, out)
		}
	}
	for i := 0; i < records; i += 2 {
		if i%500 != 0 {
			continue
		}
		r, err := dest.Get(ctx, fmt.Sprintf("c1/even/%05d", i))
		if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != fmt.Sprintf("%d@%d", i, revisions[i]) {
			t.Errorf("%d: %v, %v, want version %d", i, r.Kvs, err, revisions[i])
		}
	}
	t.Logf("%d records, %d kills", records, kills)
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

// TestLife checks a pipelet without a flow, and then with one. Without a flow, keys and deletions
// must arrive unchanged. This must hold even if the history is compacted while no worker runs,
// except for deletions in the compacted history. The condition must warn of these. A flow that
// fails on a record must stop there, report it, and continue when the flow is fixed.
func TestLife(t *testing.T) {
	from, source := cluster(t)
	to, dest := cluster(t)
	ctx := t.Context()
	put := func(key, value string) int64 {
		t.Helper()
		r, err := source.Put(ctx, "load/"+key, value)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	is := func(key, want string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, key+" is "+want, func() error {
			r, err := dest.Get(ctx, "c1/"+key)
			switch {
			case err != nil:
				return err
			case len(r.Kvs) == 0 && want == "", len(r.Kvs) == 1 && string(r.Kvs[0].Value) == want && want != "":
				return nil
			}
			return fmt.Errorf("it is %v", r.Kvs)
		})
	}
	out := &syncbuffer.Buffer{}
	text := strings.Split(pipelet, "  flow:")[0] + "  eoio: true\n"
	put("a", "1")
	c := begin(t, out, "run", file(t, text, from, to))
	is("a", "1")
	put("b", "2")
	is("b", "2")
	if _, err := source.Delete(ctx, "load/a"); err != nil {
		t.Fatal(err)
	}
	is("a", "")
	c.Process.Signal(os.Interrupt)
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	put("b", "3")
	if _, err := source.Compact(ctx, put("c", "4")); err != nil {
		t.Fatal(err)
	}
	c = begin(t, out, "run", file(t, text+"  flow: SELECT key, 10 * value::INT AS value FROM src\n", from, to))
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	is("b", "30")
	is("c", "40")
	poll.Until(t, 30*time.Second, "the condition", func() bool {
		return strings.Contains(out.String(), "ready=true reason=HistoryCompacted")
	}, out.String)
	put("d", "not a number")
	poll.Until(t, 30*time.Second, "the condition", func() bool {
		return strings.Contains(out.String(), "FlowFails") && strings.Contains(out.String(), "not a number")
	})
	c.Process.Kill()
	c.Wait()
	c = begin(t, out, "run", file(t, text+"  flow: SELECT key, TRY_CAST(value AS INT) AS value FROM src\n", from, to))
	put("e", "5")
	is("e", "5")
	is("d", "")
	c.Process.Kill()
	c.Wait()
	// This deletion will be missing, and no record follows it.
	if _, err := source.Delete(ctx, "load/e"); err != nil {
		t.Fatal(err)
	}
	r, err := source.Put(ctx, "elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Compact(ctx, r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	out = &syncbuffer.Buffer{}
	c = begin(t, out, "run", file(t, text, from, to))
	poll.Until(t, 30*time.Second, "the condition", func() bool {
		return strings.Contains(out.String(), "ready=true reason=HistoryCompacted")
	}, out.String)
}

func TestCheck(t *testing.T) {
	good := fmt.Sprintf(pipelet, "http://a:1", "http://b:1")
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"value::BIGINT", "valu::BIGINT", "LINE 2"},
		{"eoio: true", "eoio: 3", "eoio"},
		{"eoio: true", "eioo: true", "eioo"},
		{"http://b:1", "http://a:1", ""},
		{"\"http://b:1\"], prefix: c1/", "\"http://a:1\"], prefix: load/x", "feed itself"},
		{"http://b:1", "b:1", "endpoints"},
		{"name: p1", "name: ../p1", "not a name"},
		{"kind: Pipelet", "kind: Pod", "write apiVersion: netcraq.io/v1alpha1 and kind: Pipelet"},
		{"eoio: true", "interval: -1", "interval"},
		{"prefix: c1/", "prefix: c1/, secret: ../x", "secret"},
	} {
		var out, errs bytes.Buffer
		cmd := command()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"check", file(t, "%s", strings.Replace(good, c.old, c.new, 1))})
		cmd.SetErr(&errs)
		err := cmd.ExecuteContext(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
		if said := out.String() == "pipelet default/p1: all is well\n"; said != (err == nil) {
			t.Errorf("%s: printed %q", c.new, out.String())
		}
	}
}

func TestExplain(t *testing.T) {
	name := file(t, pipelet, "http://a:1", "http://b:1")
	for _, c := range []struct{ format, want string }{
		{"text", "readers 1, flows 1, workers 1\netcd http://a:1 load/, as records come\n  SELECT 'even/'"},
		{"json", `"source": "etcd http://a:1 load/"`},
		{"xml", "it is text or json"},
		{"text --replicas 2", "etcd http://a:1 load/, as records come, on replica 1\n"},
		{"text --replicas -1", "0 to 1000"},
		{"text --cluster", "either files are given, or --cluster"},
	} {
		var out bytes.Buffer
		cmd := command()
		cmd.SetArgs(append(strings.Fields("explain --output "+c.format), name))
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			fmt.Fprint(&out, err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %s, want %q", c.format, &out, c.want)
		}
	}
}

// TestRate checks that a rate limits the number of records that arrive over time, and that all
// records arrive.
func TestRate(t *testing.T) {
	from, source := cluster(t)
	to, dest := cluster(t)
	for i := range 3 {
		var ops []clientv3.Op
		for k := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("load/%d/%02d", i, k), "1"))
		}
		if _, err := source.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	out := &syncbuffer.Buffer{}
	begun := time.Now()
	text := strings.Split(pipelet, "  flow:")[0] + "  eoio: true\n  rate: 100\n"
	c := begin(t, out, "run", file(t, text, from, to))
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	poll.Nil(t, 30*time.Second, "300 records", func() error {
		r, err := dest.Get(t.Context(), "c1/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && r.Count != 300 {
			err = fmt.Errorf("%d", r.Count)
		}
		return err
	})
	// a burst of 100 records is written at once, and the others at 100 per second
	if d := time.Since(begun); d < 1800*time.Millisecond {
		t.Errorf("300 records took %v with 100 a second", d)
	}
}
