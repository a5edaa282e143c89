package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql/pgtest"
)

// killsFor returns how long the test kills processes: a few seconds, or NETCRAQ_PIPELETS_KILLS.
func killsFor(t *testing.T) time.Duration {
	text := os.Getenv("NETCRAQ_PIPELETS_KILLS")
	if text == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestKillPostgreSQL copies numbered records from one PostgreSQL to another, and kills workers and
// both servers at random. Two writers insert records, one of them in transactions that commit late.
// Each record must arrive once, in the order of the source's transactions.
func TestKillPostgreSQL(t *testing.T) {
	from, to := pgtest.New(t), pgtest.New(t)
	from.Do(`CREATE TABLE src (key text NOT NULL, value text, seq bigint GENERATED ALWAYS AS IDENTITY,
		xid xid8 NOT NULL DEFAULT pg_current_xact_id())`, "CREATE INDEX ON src (xid, seq)")
	to.Do("CREATE TABLE dst (key text NOT NULL, value text, id bigserial)")
	name := file(t, `apiVersion: netcraq.io/v1alpha1
kind: Pipelet
metadata: {name: p1}
spec:
  src: [{postgresql: {address: %q, database: postgres, table: src}}]
  dst: [{postgresql: {address: %q, database: postgres, table: dst, append: true}}]
  flow: SELECT key, value || '@' || version AS value FROM src WHERE value::BIGINT %% 2 = 0
  eoio: true
`, from.Address, to.Address)

	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan int, 2)
	for w := range 2 {
		go func() {
			n := 0
			defer func() { written <- n }()
			for ctx.Err() == nil {
				// After a crash of the server, the writer reads which rows exist, and continues
				// after the last row.
				func() {
					c, err := pgx.Connect(context.Background(), "postgres://netcraq@"+from.Address+"/postgres?sslmode=disable")
					if err != nil {
						time.Sleep(50 * time.Millisecond)
						return
					}
					defer c.Close(context.Background())
					for ctx.Err() == nil {
						err := c.QueryRow(context.Background(), "SELECT count(*) FROM src WHERE key = $1", fmt.Sprint(w)).Scan(&n)
						if err != nil {
							return
						}
						tx, err := c.Begin(context.Background())
						if err != nil {
							return
						}
						for range 1 + rand.IntN(40) {
							if _, err := tx.Exec(context.Background(), "INSERT INTO src (key, value) VALUES ($1, $2)",
								fmt.Sprint(w), fmt.Sprint(n)); err != nil {
								return
							}
							n++
							if w == 1 && rand.IntN(10) == 0 {
								time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
							}
						}
						if tx.Commit(context.Background()) != nil {
							return
						}
						time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					}
				}()
			}
		}()
	}

	out := &syncbuffer.Buffer{}
	var running []*exec.Cmd
	kill := func(k int) {
		running[k].Process.Kill()
		running[k].Wait()
		running = append(running[:k], running[k+1:]...)
	}
	defer func() {
		for len(running) > 0 {
			kill(0)
		}
	}()
	kills, servers := 0, 0
	for end := time.Now().Add(killsFor(t)); time.Now().Before(end) || kills == 0 || servers == 0; {
		switch {
		case len(running) == 0 || len(running) == 1 && rand.IntN(2) == 0:
			running = append(running, begin(t, out, "run", name))
		case rand.IntN(8) == 0:
			from.Kill()
			from.Start()
			servers++
		case rand.IntN(7) == 0:
			to.Kill()
			to.Start()
			servers++
		default:
			kill(rand.IntN(len(running)))
			kills++
		}
		time.Sleep(time.Duration(50+rand.IntN(900)) * time.Millisecond)
	}
	cancel()
	<-written
	<-written
	if len(running) == 0 {
		running = append(running, begin(t, out, "run", name))
	}
	rows := func(s *pgtest.Server, q string) (all []string) {
		r, _ := s.Connect().Query(t.Context(), q)
		all, err := pgx.CollectRows(r, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := rows(from, "SELECT key || ' ' || value || '@' || seq FROM src WHERE value::bigint % 2 = 0 ORDER BY xid, seq")
	var got []string
	limit := time.Now().Add(time.Minute)
	for ; len(got) < len(want) && time.Now().Before(limit); time.Sleep(200 * time.Millisecond) {
		got = rows(to, "SELECT key || ' ' || value FROM dst ORDER BY id")
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("record %d of %d is %q, want %q", i, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d of %d records arrived\n%s", len(got), len(want), out)
	}
	t.Logf("%d records, workers killed %d times, servers %d times", len(want), kills, servers)
	if kills == 0 || servers == 0 || len(want) < 100 {
		t.Error("too little happened")
	}
}
