package postgresql_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql/pgtest"
)

const sourceTable = `CREATE TABLE src (key text NOT NULL, value text, seq bigint GENERATED ALWAYS AS IDENTITY,
	xid xid8 NOT NULL DEFAULT pg_current_xact_id())`

func sink(t *testing.T, s *pgtest.Server, table string, eoio bool) *postgresql.Sink {
	t.Helper()
	out, err := postgresql.NewSink(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: table}, nil, "default/p/x", eoio)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

func state(n uint64) exactlyonce.State {
	return exactlyonce.State{Position: exactlyonce.Position{Epoch: "e", Seq: n}, Rows: n}
}

// TestSink checks that a sink notices another worker's write. A refused row must yield a clear
// error and change nothing.
func TestSink(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE TABLE dst (key text PRIMARY KEY, value int)", "CREATE TABLE raw (key text PRIMARY KEY, value bytea)",
		"CREATE ROLE reader LOGIN")
	ctx := t.Context()
	a, b := sink(t, s, "dst", true), sink(t, s, "dst", true)
	for _, x := range []*postgresql.Sink{a, b} {
		if got, err := x.Open(ctx); err != nil || got != (exactlyonce.State{}) {
			t.Fatal(got, err)
		}
	}
	one := []endpoint.Row{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}, {Key: "b", Deleted: true}}
	if err := a.Commit(ctx, exactlyonce.State{}, state(3), one); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(ctx, exactlyonce.State{}, state(3), one); exactlyonce.KindOf(err) != exactlyonce.Conflict {
		t.Errorf("of two first commits the second says %v", err)
	}
	if got, err := b.Open(ctx); err != nil || got != state(3) {
		t.Fatal(got, err)
	}
	if err := b.Commit(ctx, state(3), state(4), []endpoint.Row{{Key: "c", Value: []byte("3")}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, state(3), state(4), one); exactlyonce.KindOf(err) != exactlyonce.Conflict {
		t.Errorf("a worker that was overtaken is told %v", err)
	}
	// The failed batch was dropped. The next batch begins from the destination's state.
	if got, err := a.Open(ctx); err != nil || got != state(4) {
		t.Fatal(got, err)
	}
	for _, c := range []struct {
		row  endpoint.Row
		want string
	}{
		{endpoint.Row{Key: "d", Value: []byte("many")}, "invalid input syntax"},
		{endpoint.Row{Key: "d", Value: []byte{0xff}}, "bytea"},
		{endpoint.Row{Key: "d\x00", Value: []byte("1")}, "no text"},
	} {
		err := a.Commit(ctx, state(4), state(6), []endpoint.Row{{Key: "e", Value: []byte("5")}, c.row})
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want refused: %s", c.row, err, c.want)
		}
	}
	s.Do("ALTER TABLE dst RENAME value TO amount")
	err := a.Commit(ctx, state(4), state(5), one)
	if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "CREATE TABLE") {
		t.Errorf("a table that is another: %v", err)
	}
	s.Do("ALTER TABLE dst RENAME amount TO value")
	if err := a.Commit(ctx, state(4), state(5), []endpoint.Row{{Key: "a", Value: []byte("7")}}); err != nil {
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
	if err := raw.Commit(ctx, exactlyonce.State{}, state(9), []endpoint.Row{{Key: "x", Value: []byte{0,
		0xff}}}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, c, "SELECT encode(value, 'hex') FROM raw"); got != "00ff" {
		t.Error(got)
	}
	// While the server is down, no row counts as written, and another attempt is possible.
	s.Kill()
	if err := a.Commit(ctx, state(5), state(6), one); err == nil || exactlyonce.KindOf(err) != exactlyonce.Temporary {
		t.Error(err)
	}
	s.Start()
	if got, err := a.Open(ctx); err != nil || got != state(9) {
		// the commit of the sink `raw` has also changed this state, because both sinks have the
		// same name
		t.Error(got, err)
	}
}

// TestNothingIsCut checks that the sink refuses a value that its column would truncate, as an
// INSERT in PostgreSQL does. Other values must be stored unchanged.
func TestNothingIsCut(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE DOMAIN short AS varchar(5)", "CREATE DOMAIN shorter AS short", "CREATE DOMAIN raw AS bytea",
		"CREATE DOMAIN rawer AS raw")
	c := s.Connect()
	for i, x := range []struct{ kind, fits, not string }{
		{"varchar(5)", "äöü12", "äöü123"},
		{"char(5)", "12345", "123456"},
		{"char", "1", "12"},
		{"bit(3)", "101", "10110"},
		{"bit", "1", "10"},
		{"bit varying(3)", "101", "10110"},
		{"varchar(2)[]", "{ab,cd}", "{ab,cde}"},
		{"short", "12345", "123456"},
		{"shorter", "12345", "123456"},
		{"numeric(4,2)", "12.34", "123.4"},
		{"int", "12", "1.5"},
		{"jsonb", `{"a": 1}`, `{"a"`},
		{"uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99"},
		{"text", `\x41\\`, "a\x00"},
	} {
		table := fmt.Sprint("t", i)
		s.Do(fmt.Sprintf("CREATE TABLE %s (key text PRIMARY KEY, value %s)", table, x.kind))
		out, err := postgresql.NewSink(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: table}, nil,
			table, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = out.Commit(t.Context(), exactlyonce.State{}, state(1), []endpoint.Row{{Key: "a", Value: []byte(x.not)}})
		if exactlyonce.KindOf(err) != exactlyonce.Refused {
			t.Errorf("%s: %q: %v", x.kind, x.not, err)
		}
		if _, err := out.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = out.Commit(t.Context(), exactlyonce.State{}, state(1), []endpoint.Row{{Key: "b", Value: []byte(x.fits)}})
		if err != nil {
			t.Errorf("%s: %q: %v", x.kind, x.fits, err)
		} else if got := text(t, c, "SELECT string_agg(value::text, '|') FROM "+table); got != x.fits {
			t.Errorf("%s has %q, want %q", x.kind, got, x.fits)
		}
		out.Close()
	}
	s.Do("CREATE TABLE bytes (key text PRIMARY KEY, value rawer)")
	out := sink(t, s, "bytes", true)
	if _, err := out.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	row := endpoint.Row{Key: "a", Value: []byte(`\x41`)}
	if err := out.Commit(t.Context(), exactlyonce.State{}, state(1), []endpoint.Row{row}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, c, "SELECT convert_from(value, 'UTF8') FROM bytes"); got != string(row.Value) {
		t.Errorf("a domain over bytea has %q, want %q", got, row.Value)
	}
}

func text(t *testing.T, c *pgx.Conn, q string) (s string) {
	t.Helper()
	if err := c.QueryRow(context.Background(), q).Scan(&s); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return s
}

// TestLateCommit checks that the source does not skip a transaction that got its ID early and
// commits late.
func TestLateCommit(t *testing.T) {
	s := pgtest.New(t)
	s.Do(sourceTable)
	ctx := t.Context()
	source, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: "src"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	read := func(from exactlyonce.Position, wait time.Duration) (keys string, to exactlyonce.Position) {
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
	keys, at := read(exactlyonce.Position{}, 300*time.Millisecond)
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
	// A new table with the same name counts as another source.
	s.Do("DROP TABLE src", sourceTable)
	source.Close()
	if _, _, err := source.Read(ctx, at, 100); exactlyonce.KindOf(err) != exactlyonce.Refused ||
		!strings.Contains(err.Error(), "another name") {
		t.Errorf("a table that was made anew: %v", err)
	}
}

// TestSession checks that values arrive unchanged with any encoding of the database and any
// settings of the role.
func TestSession(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	for _, set := range []string{"extra_float_digits = -10", "datestyle = 'SQL, DMY'", "intervalstyle = sql_standard",
		"timezone = 'Asia/Kolkata'", "array_nulls = off", "bytea_output = escape", "xmloption = document",
		"lc_monetary = 'C.utf8'", "quote_all_identifiers = on"} {
		s.Do("ALTER ROLE netcraq SET " + set)
	}
	ctx := t.Context()
	c, err := pgx.Connect(ctx, "postgres://netcraq@"+s.Address+"/latin?sslmode=disable&client_encoding=UTF8")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "CREATE TYPE pair AS (a int, b text)"); err != nil {
		t.Fatal(err)
	}
	for i, x := range []struct{ kind, value string }{
		{"text", "grün"},
		{"float8", "0.30000000000000004"},
		{"date", "2026-02-01"},
		{"timestamp", "2026-02-01 03:04:05"},
		{"timestamptz", "2026-02-01 03:04:05+00"},
		{"interval", "1 year 2 mons -3 days +04:05:06"},
		{"text[]", `{a,NULL,"NULL"}`},
		{"bytea[]", `{"\\x41ff"}`},
		{"xml", "a <b/>"},
		{"pair", "(,)"}, // for this value, IS NULL is true, although it is not NULL
		{"regtype", "integer"},
	} {
		from, to := fmt.Sprint("src", i), fmt.Sprint("dst", i)
		for _, q := range []string{
			fmt.Sprintf(strings.Replace(sourceTable, "value text", "value %s", 1), x.kind),
			"ALTER TABLE src RENAME TO " + from, "SET datestyle = 'ISO, MDY'", "SET array_nulls = on", "SET xmloption = content",
			fmt.Sprintf("INSERT INTO %s VALUES ('grün', '%s')", from, x.value),
			fmt.Sprintf("CREATE TABLE %s (key text PRIMARY KEY, value %s)", to, x.kind),
		} {
			if _, err := c.Exec(ctx, q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		spec := pipeletapi.PostgreSQL{Address: s.Address, Database: "latin", Table: from}
		source, err := postgresql.NewSource(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { source.Close() })
		records, _, err := source.Read(ctx, exactlyonce.Position{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) != 1 || records[0].Deleted || records[0].Key != "grün" || string(records[0].Value) != x.value {
			t.Errorf("%s: read %+v, want %s", x.kind, records, x.value)
		}
		spec.Table = to
		out, err := postgresql.NewSink(spec, nil, to, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		if _, err := out.Open(ctx); err != nil {
			t.Fatal(err)
		}
		row := []endpoint.Row{{Key: "grün", Value: []byte(x.value)}}
		if err := out.Commit(ctx, exactlyonce.State{}, state(1), row); err != nil {
			t.Fatal(err)
		}
		source.Close()
		out.Close()
		var same bool
		q := fmt.Sprintf("SELECT count(*) = 1 FROM %s s JOIN %s d USING (key) WHERE s.value::text = d.value::text", from, to)
		if err := c.QueryRow(ctx, q).Scan(&same); err != nil || !same {
			t.Errorf("%s: what was written is not what was there, %v", x.kind, err)
		}
	}
}

// TestOddRows checks that a row that a source cannot read is refused clearly, after the rows before
// it have arrived. When the row is fixed, the remaining rows must arrive.
func TestOddRows(t *testing.T) {
	s := pgtest.New(t)
	const table = `(key text, value text, seq bigint NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id())`
	for i, c := range []struct{ table, odd, want, mend string }{
		{table, "INSERT INTO %s SELECT n, n, least(n, 100) FROM generate_series(1, 250) n", "the seq 100",
			"UPDATE %s SET seq = value::int"},
		{table, "INSERT INTO %s SELECT n, n, CASE n WHEN 101 THEN 100 ELSE n END FROM generate_series(1, 250) n",
			"the seq 100", "UPDATE %s SET seq = value::int"},
		{table, "INSERT INTO %s SELECT nullif(n, 50), n, n FROM generate_series(1, 250) n", "seq 50 has no key",
			"UPDATE %s SET key = value WHERE key IS NULL"},
		{strings.Replace(table, "xid8 NOT NULL", "xid8", 1),
			"INSERT INTO %s SELECT n, n, n, CASE n WHEN 9 THEN NULL ELSE pg_current_xact_id() END FROM generate_series(1, 250) n",
			"SET NOT NULL", "DELETE FROM %[1]s; ALTER TABLE %[1]s ALTER xid SET NOT NULL; " +
				"INSERT INTO %[1]s SELECT n, n, n FROM generate_series(1, 250) n"},
		{strings.Replace(table, "bigint NOT NULL", "bigint", 1),
			"INSERT INTO %s SELECT n, n, nullif(n, 9) FROM generate_series(1, 250) n",
			"SET NOT NULL", "UPDATE %[1]s SET seq = 9 WHERE seq IS NULL; ALTER TABLE %[1]s ALTER seq SET NOT NULL"},
	} {
		name := fmt.Sprint("s", i)
		s.Do("CREATE TABLE "+name+" "+c.table, fmt.Sprintf(c.odd, name))
		source, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var at exactlyonce.Position
		n := 0
		read := func() (err error) {
			for err == nil && n < 250 {
				until, cancel := context.WithTimeout(t.Context(), time.Second)
				var records []endpoint.Record
				records, at, err = source.Read(until, at, 100)
				cancel()
				if err == nil && len(records) == 0 {
					return errors.New("no record comes")
				}
				for _, r := range records {
					if n++; r.Key != fmt.Sprint(n) {
						t.Fatalf("%s: after %d records comes %s", c.odd, n-1, r.Key)
					}
				}
			}
			return err
		}
		if c.want != "" {
			if err := read(); exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: after %d records %v, want refused: %s", c.odd, n, err, c.want)
			}
			for q := range strings.SplitSeq(fmt.Sprintf(c.mend, name), ";") {
				s.Do(q)
			}
		}
		if err := read(); err != nil || n != 250 {
			t.Errorf("%s, and then %s: %d records, %v", c.odd, c.mend, n, err)
		}
		source.Close()
	}
	// PostgreSQL cannot tell whether a column of a view may be NULL.
	s.Do("CREATE TABLE base (key text, value text, seq bigint, xid xid8 DEFAULT pg_current_xact_id())",
		"INSERT INTO base VALUES ('a', '1', NULL)", "CREATE VIEW v AS SELECT * FROM base")
	source, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: "v"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	_, _, err = source.Read(t.Context(), exactlyonce.Position{}, 100)
	if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "column seq") {
		t.Errorf("a view with a row without seq: %v", err)
	}
}

// TestRestored checks a server that was restored from an older copy of its data, and has the same
// identity and table. A source must report that the server went back, and the remedy.
func TestRestored(t *testing.T) {
	s := pgtest.New(t)
	s.Do(sourceTable, "INSERT INTO src VALUES ('a', '1')")
	source, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: s.Address, Database: "postgres", Table: "src"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	data := filepath.Join(s.Dir, "data")
	copied := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s.Kill()
	copied(data, data+".old")
	s.Start()
	s.Do("INSERT INTO src VALUES ('b', '2')", "INSERT INTO src VALUES ('c', '3')")
	_, at, err := source.Read(t.Context(), exactlyonce.Position{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Start() // the server was not restored, so the source continues
	s.Do("INSERT INTO src VALUES ('d', '4')")
	poll.Nil(t, 20*time.Second, "a server that was started again", func() error {
		var records []endpoint.Record
		if records, at, err = source.Read(t.Context(), at, 100); err == nil && len(records) != 1 {
			t.Fatal(records)
		}
		return err
	})
	s.Kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	copied(data+".old", data)
	s.Start()
	s.Do("INSERT INTO src VALUES ('e', '5')")
	poll.Nil(t, 20*time.Second, "a server that was restored", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		records, _, err := source.Read(ctx, at, 100)
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "older backup") {
			return fmt.Errorf("%d records, %w", len(records), err)
		}
		return nil
	})
}

// TestFullDisk checks that a full disk is reported and no batch is written in part. The sink must
// continue when there is room again.
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
		var rows []endpoint.Row
		for i := range 100 {
			rows = append(rows, endpoint.Row{Key: fmt.Sprintf("%d/%d", n, i), Value: []byte(strings.Repeat("x", 1000))})
		}
		err = a.Commit(ctx, state(n), state(n+1), rows)
	}
	n--
	if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("a full disk: %v", err)
	}
	if got, err := a.Open(ctx); err != nil || got != state(n) {
		t.Fatal(got, err)
	}
	if err := syscall.Mount("", small, "tmpfs", syscall.MS_REMOUNT, "size=20m"); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, state(n), state(n+1), []endpoint.Row{{Key: "last", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, s.Connect(), "SELECT count(*)::text FROM dst"); got != fmt.Sprint(100*n+1) {
		t.Errorf("there are %s rows, want %d", got, 100*n+1)
	}
}

// TestRefused checks the errors for a missing table or database, a user without permission, and a
// missing secret.
func TestRefused(t *testing.T) {
	s := pgtest.New(t)
	s.Do("CREATE ROLE guest LOGIN", "CREATE TABLE dst (key text PRIMARY KEY, value text)")
	secrets := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(secrets, "guest"), 0o700),
		os.WriteFile(filepath.Join(secrets, "guest", "username"), []byte("guest\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec pipeletapi.PostgreSQL
		want string
	}{
		{pipeletapi.PostgreSQL{Database: "postgres", Table: "nothere"}, "CREATE TABLE"},
		{pipeletapi.PostgreSQL{Database: "nothere", Table: "dst"}, "does not exist"},
		{pipeletapi.PostgreSQL{Database: "postgres", Table: "dst", Secret: "guest"}, "permission denied"},
		{pipeletapi.PostgreSQL{Database: "postgres", Table: "dst", Secret: "nothere"}, "no such file"},
		{pipeletapi.PostgreSQL{Database: "postgres", Table: `d"; DROP TABLE dst; --`}, "CREATE TABLE"},
	} {
		c.spec.Address = s.Address
		out, err := postgresql.NewSink(c.spec, endpoint.Folder(secrets), "default/p/x", true)
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.Open(t.Context())
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want refused: %s", c.spec, err, c.want)
		}
		out.Close()
	}
}

// bouncer starts a proxy in front of a server. Like PgBouncer, the proxy refuses session parameters
// that it does not know, except for those in ignores.
func bouncer(t *testing.T, server string, ignores ...string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(client net.Conn) error {
		defer client.Close()
		b := pgproto3.NewBackend(client, client)
		m, err := b.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		start, ok := m.(*pgproto3.StartupMessage)
		if !ok { // the client sent a request to cancel a query
			return nil
		}
		known := []string{"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
		for name := range start.Parameters {
			switch {
			case slices.Contains(ignores, name):
				delete(start.Parameters, name)
			case !slices.Contains(known, name):
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01",
					Message: "unsupported startup parameter: " + name})
				return b.Flush()
			}
		}
		up, err := net.Dial("tcp", server)
		if err != nil {
			return err
		}
		defer up.Close()
		begin, err := start.Encode(nil)
		if err != nil {
			return err
		}
		if _, err := up.Write(begin); err != nil {
			return err
		}
		go func() { _, _ = io.Copy(up, client); up.Close() }()
		_, _ = io.Copy(client, up)
		return nil
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if err := serve(c); err != nil {
					t.Error(err)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestBouncer checks a PgBouncer that does not forward the settings of a session. A store behind it
// must be refused with an error that names the remedy. After the remedy the store must work.
func TestBouncer(t *testing.T) {
	s := pgtest.New(t)
	s.Do(sourceTable, "INSERT INTO src VALUES ('a', '1')", "CREATE TABLE dst (key text PRIMARY KEY, value text)")
	ctx := t.Context()
	try := func(address string) error {
		t.Helper()
		spec := pipeletapi.PostgreSQL{Address: address, Database: "postgres", Table: "src"}
		source, err := postgresql.NewSource(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		records, _, failed := source.Read(ctx, exactlyonce.Position{}, 100)
		if failed == nil && len(records) != 1 {
			t.Errorf("%+v was read", records)
		}
		spec.Table = "dst"
		out, err := postgresql.NewSink(spec, nil, "default/p/x", true)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err = out.Open(ctx); exactlyonce.KindOf(err) != exactlyonce.KindOf(failed) ||
			(err == nil) != (failed == nil) {
			t.Errorf("a source says %v, a destination %v", failed, err)
		}
		return failed
	}
	refused := func(address string) (statements []string) {
		t.Helper()
		err := try(address)
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(fmt.Sprint(err), "PgBouncer") {
			t.Fatalf("%v", err)
		}
		return regexp.MustCompile(`ALTER ROLE [^;]+;`).FindAllString(err.Error(), -1)
	}
	statements := refused(bouncer(t, s.Address))
	ignores := []string{"array_nulls", "bytea_output", "extra_float_digits", "idle_in_transaction_session_timeout",
		"intervalstyle", "lc_monetary", "quote_all_identifiers", "search_path", "statement_timeout", "xmloption"}
	at := bouncer(t, s.Address, ignores...)
	// An ignored setting may have the right value by default. Only four of these settings do not.
	if also := refused(at); len(statements) != len(ignores) || len(also) != 4 {
		t.Errorf("where they are refused it says %q, where they are ignored %q", statements, also)
	}
	s.Do(statements...)
	if err := try(at); err != nil {
		t.Errorf("with the role's settings: %v", err)
	}
	s.Do("ALTER ROLE netcraq SET extra_float_digits = 0")
	if left := refused(at); len(left) != 1 || !strings.Contains(left[0], "extra_float_digits") {
		t.Errorf("with one of them wrong: %q", left)
	}
}

// TestAnnounced checks a server that announces a message of 1,000 MiB. It must be refused before
// that much memory is allocated.
func TestAnnounced(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write(binary.BigEndian.AppendUint32([]byte{'R'}, 1000<<20))
			defer c.Close()
		}
	}()
	s, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: l.Addr().String(), Database: "d", Table: "t"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = s.Read(ctx, exactlyonce.Position{}, 100)
	runtime.ReadMemStats(&after)
	if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "1048575996 bytes") {
		t.Errorf("%v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}

// TestLargeRows checks that many large rows arrive in batches of bounded size, each row once. A row
// that is too large must be refused with a clear error.
func TestLargeRows(t *testing.T) {
	server := pgtest.New(t)
	server.Do(sourceTable, "INSERT INTO src (key, value) SELECT g, repeat('x', 3 << 20) FROM generate_series(1, 12) g")
	s, err := postgresql.NewSource(pipeletapi.PostgreSQL{Address: server.Address, Database: "postgres", Table: "src"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var at exactlyonce.Position
	for n := 0; n < 12; {
		records, to, err := s.Read(t.Context(), at, 100)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, r := range records {
			if n++; r.Key != fmt.Sprint(n) {
				t.Fatalf("%s is record %d", r.Key, n)
			}
			size += len(r.Value)
		}
		if size > 16<<20 {
			t.Fatalf("a batch has %d bytes", size)
		}
		at = to
	}
	server.Do("INSERT INTO src (key, value) VALUES ('large', repeat('x', 65 << 20))")
	if _, _, err := s.Read(t.Context(), at, 100); exactlyonce.KindOf(err) != exactlyonce.Refused ||
		!strings.Contains(err.Error(), "shorter") {
		t.Errorf("%v", err)
	}
	server.Do("DELETE FROM src WHERE key = 'large'", "INSERT INTO src (key, value) VALUES ('small', 'y')")
	if records, _, err := s.Read(t.Context(), at, 100); err != nil || len(records) != 1 {
		t.Errorf("%d records, %v", len(records), err)
	}
}
