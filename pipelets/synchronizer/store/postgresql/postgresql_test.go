package postgresql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	api "github.com/netcraq/netcraq/api/pipelet"
	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store/postgresql"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store/postgresql/pgtest"
)

const sourceTable = `CREATE TABLE src (key text NOT NULL, value text, seq bigint GENERATED ALWAYS AS IDENTITY,
	xid xid8 NOT NULL DEFAULT pg_current_xact_id())`

func sink(t *testing.T, s *pgtest.Server, table string, eoio bool) *postgresql.Sink {
	t.Helper()
	out, err := postgresql.NewSink(api.PostgreSQL{Address: s.Address, Database: "postgres", Table: table}, nil, "default/p/x", eoio)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

func state(n uint64) core.State {
	return core.State{Position: core.Position{Epoch: "e", Seq: n}, Rows: n}
}

// What another worker has written is seen, and what is refused says so and changes nothing.
func TestSink(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE TABLE dst (key text PRIMARY KEY, value int)", "CREATE TABLE raw (key text PRIMARY KEY, value bytea)",
		"CREATE ROLE reader LOGIN")
	ctx := t.Context()
	a, b := sink(t, s, "dst", true), sink(t, s, "dst", true)
	for _, x := range []*postgresql.Sink{a, b} {
		if got, err := x.Open(ctx); err != nil || got != (core.State{}) {
			t.Fatal(got, err)
		}
	}
	one := []store.Row{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}, {Key: "b", Deleted: true}}
	if err := a.Commit(ctx, core.State{}, state(3), one); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(ctx, core.State{}, state(3), one); core.KindOf(err) != core.Conflict {
		t.Errorf("of two first commits the second says %v", err)
	}
	if got, err := b.Open(ctx); err != nil || got != state(3) {
		t.Fatal(got, err)
	}
	if err := b.Commit(ctx, state(3), state(4), []store.Row{{Key: "c", Value: []byte("3")}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, state(3), state(4), one); core.KindOf(err) != core.Conflict {
		t.Errorf("a worker that was overtaken is told %v", err)
	}
	// What it made was dropped, and the next one begins from what is there.
	if got, err := a.Open(ctx); err != nil || got != state(4) {
		t.Fatal(got, err)
	}
	for _, c := range []struct {
		row  store.Row
		want string
	}{
		{store.Row{Key: "d", Value: []byte("many")}, "invalid input syntax"},
		{store.Row{Key: "d", Value: []byte{0xff}}, "bytea"},
		{store.Row{Key: "d\x00", Value: []byte("1")}, "no text"},
	} {
		err := a.Commit(ctx, state(4), state(6), []store.Row{{Key: "e", Value: []byte("5")}, c.row})
		if core.KindOf(err) != core.Refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want refused: %s", c.row, err, c.want)
		}
	}
	s.Do("ALTER TABLE dst RENAME value TO amount")
	err := a.Commit(ctx, state(4), state(5), one)
	if core.KindOf(err) != core.Refused || !strings.Contains(err.Error(), "CREATE TABLE") {
		t.Errorf("a table that is another: %v", err)
	}
	s.Do("ALTER TABLE dst RENAME amount TO value")
	if err := a.Commit(ctx, state(4), state(5), []store.Row{{Key: "a", Value: []byte("7")}}); err != nil {
		t.Errorf("when the cause is gone: %v", err)
	}
	c := s.Connect()
	if got := text(t, c, "SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM dst"); got != "a=7 c=3" {
		t.Error(got)
	}
	raw := sink(t, s, "raw", false)
	if _, err := raw.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := raw.Commit(ctx, core.State{}, state(9), []store.Row{{Key: "x", Value: []byte{0, 0xff}}}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, c, "SELECT encode(value, 'hex') FROM raw"); got != "00ff" {
		t.Error(got)
	}
	// No server: nothing is known to be written, and it is tried again.
	s.Kill()
	if err := a.Commit(ctx, state(5), state(6), one); err == nil || core.KindOf(err) != core.Temporary {
		t.Error(err)
	}
	s.Start()
	if got, err := a.Open(ctx); err != nil || got != state(9) {
		t.Error(got, err) // the name is one, and raw has written it too
	}
}

func text(t *testing.T, c *pgx.Conn, q string) (s string) {
	t.Helper()
	if err := c.QueryRow(context.Background(), q).Scan(&s); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return s
}

// A transaction that took its number early and commits late is not passed by.
func TestLateCommit(t *testing.T) {
	s := pgtest.New(t)
	s.Do(sourceTable)
	ctx := t.Context()
	source, err := postgresql.NewSource(api.PostgreSQL{Address: s.Address, Database: "postgres", Table: "src"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	read := func(from core.Position, wait time.Duration) (keys string, to core.Position) {
		t.Helper()
		until, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		records, to, err := source.Read(until, from, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if keys += r.Key; r.Deleted {
				keys += "!"
			} else if string(r.Value) != `\`+r.Key {
				t.Errorf("%s has the value %q", r.Key, r.Value)
			}
		}
		return keys, to
	}
	late, err := s.Connect().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(ctx, `INSERT INTO src VALUES ('a', '\a')`); err != nil {
		t.Fatal(err)
	}
	s.Do(`INSERT INTO src VALUES ('b', '\b')`)
	keys, at := read(core.Position{}, 300*time.Millisecond)
	if keys != "" {
		t.Fatalf("%q was read before a transaction with a lower number had ended", keys)
	}
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if keys, at = read(at, 5*time.Second); keys != "ab" {
		t.Fatalf("%q was read", keys)
	}
	s.Do(`INSERT INTO src VALUES ('c', '\c'), ('d', NULL)`)
	if keys, at = read(at, 5*time.Second); keys != "cd!" {
		t.Errorf("%q was read", keys)
	}
	// Another table under the same name is another source.
	s.Do("DROP TABLE src", sourceTable)
	source.Close()
	if _, _, err := source.Read(ctx, at, 100); core.KindOf(err) != core.Refused || !strings.Contains(err.Error(), "another name") {
		t.Errorf("a table that was made anew: %v", err)
	}
}

// A disk that is full is said, nothing is half written, and it goes on when there is room.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a small disk is mounted, which takes root")
	}
	s := pgtest.New(t)
	small := filepath.Join(s.Dir, "small")
	if err := os.Mkdir(small, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=2m,mode=0777"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) })
	space := filepath.Join(small, "space")
	if out, err := exec.Command("install", "-d", "-o", "nobody", "-m", "700", space).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.Do("CREATE TABLESPACE small LOCATION '"+space+"'", "CREATE TABLE dst (key text PRIMARY KEY, value text) TABLESPACE small",
		"CREATE TABLE big (t text) TABLESPACE small")
	a := sink(t, s, "dst", true)
	ctx := t.Context()
	if _, err := a.Open(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	n := uint64(0)
	for ; err == nil && n < 100; n++ {
		var rows []store.Row
		for i := range 100 {
			rows = append(rows, store.Row{Key: fmt.Sprintf("%d/%d", n, i), Value: []byte(strings.Repeat("x", 1000))})
		}
		err = a.Commit(ctx, state(n), state(n+1), rows)
	}
	n--
	if core.KindOf(err) != core.Refused || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("a full disk: %v", err)
	}
	if got, err := a.Open(ctx); err != nil || got != state(n) {
		t.Fatal(got, err)
	}
	if err := syscall.Mount("", small, "tmpfs", syscall.MS_REMOUNT, "size=20m"); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, state(n), state(n+1), []store.Row{{Key: "last", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, s.Connect(), "SELECT count(*)::text FROM dst"); got != fmt.Sprint(100*n+1) {
		t.Errorf("there are %s rows, want %d", got, 100*n+1)
	}
}

// A table or a database that is not there, a user who may not, a secret that is not there.
func TestRefused(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE ROLE guest LOGIN", "CREATE TABLE dst (key text PRIMARY KEY, value text)")
	secrets := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(secrets, "guest"), 0o700),
		os.WriteFile(filepath.Join(secrets, "guest", "username"), []byte("guest\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec api.PostgreSQL
		want string
	}{
		{api.PostgreSQL{Database: "postgres", Table: "nothere"}, "CREATE TABLE"},
		{api.PostgreSQL{Database: "nothere", Table: "dst"}, "does not exist"},
		{api.PostgreSQL{Database: "postgres", Table: "dst", Secret: "guest"}, "permission denied"},
		{api.PostgreSQL{Database: "postgres", Table: "dst", Secret: "nothere"}, "no such file"},
		{api.PostgreSQL{Database: "postgres", Table: `d"; DROP TABLE dst; --`}, "CREATE TABLE"},
	} {
		c.spec.Address = s.Address
		out, err := postgresql.NewSink(c.spec, store.Folder(secrets), "default/p/x", true)
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.Open(t.Context())
		if core.KindOf(err) != core.Refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want refused: %s", c.spec, err, c.want)
		}
		out.Close()
	}
}
