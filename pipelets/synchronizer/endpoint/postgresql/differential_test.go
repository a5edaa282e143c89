package postgresql_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql/pgtest"
)

var differentialRows = flag.Int("differential-rows", 0, "how many rows TestDifferential sends through the tables of all types, 10,000 or more; 0: some rows of some types")

// generator makes random values of PostgreSQL's types, as text.
type generator struct{ *rand.Rand }

func pick[T any](g generator, all ...T) T { return all[g.IntN(len(all))] }

func (g generator) integer(bits int) string {
	switch g.IntN(4) {
	case 0:
		return strconv.Itoa(pick(g, -1<<(bits-1), 1<<(bits-1)-1, 0, -1))
	case 1:
		return strconv.Itoa(g.IntN(100))
	}
	return strconv.FormatInt(int64(g.Uint64())>>(64-bits), 10)
}

func (g generator) float(bits int) string {
	if g.IntN(4) == 0 {
		return pick(g, "NaN", "Infinity", "-Infinity", "-0", "0.1", "0.30000000000000004", "1e-30", "5e-324")
	}
	if bits == 32 {
		for {
			if f := math.Float32frombits(g.Uint32()); !math.IsNaN(float64(f)) {
				return strconv.FormatFloat(float64(f), 'g', -1, 32)
			}
		}
	}
	return strconv.FormatFloat(math.Float64frombits(g.Uint64()&^(1<<62)), 'g', -1, 64)
}

func (g generator) finite() string { return strconv.FormatFloat(g.NormFloat64()*1e3, 'g', -1, 64) }

func (g generator) digits(most int) string {
	b := make([]byte, 1+g.IntN(most))
	for i := range b {
		b[i] = byte('0' + g.IntN(10))
	}
	return string(b)
}

func (g generator) numeric() string {
	if g.IntN(10) == 0 {
		return pick(g, "NaN", "Infinity", "-Infinity", "0.000", "1e100", "-0.00")
	}
	return pick(g, "", "-") + g.digits(40) + pick(g, "", "."+g.digits(30))
}

func (g generator) bitString(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + g.IntN(2))
	}
	return string(b)
}

func (g generator) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return fmt.Sprintf("%x", b)
}

// text makes a random text of the letters in an alphabet and of special characters.
func (g generator) text(alphabet string, most int) string {
	letters := []rune(alphabet + "aZ09 \t\n\r'\"\\{}()[],;:$%&|!@#NULLnull\x01\x7f")
	b := make([]rune, g.IntN(most+1))
	for i := range b {
		b[i] = letters[g.IntN(len(letters))]
	}
	return string(b)
}

func (g generator) year() string {
	return fmt.Sprintf("%04d", pick(g, 1, 4, 1000, 1582, 1900, 1970, 2000, 2026, 9999))
}

func (g generator) date() string {
	if g.IntN(10) == 0 {
		return pick(g, "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "2000-02-29")
	}
	return fmt.Sprintf("%s-%02d-%02d%s", g.year(), 1+g.IntN(12), 1+g.IntN(28), pick(g, "", "", "", " BC"))
}

func (g generator) clock() string {
	if g.IntN(10) == 0 {
		return pick(g, "24:00:00", "23:59:59.999999", "00:00:00")
	}
	return fmt.Sprintf("%02d:%02d:%02d.%06d", g.IntN(24), g.IntN(60), g.IntN(60), g.IntN(1e6))
}

func (g generator) zone() string {
	return fmt.Sprintf("%s%02d:%02d", pick(g, "+", "-"), g.IntN(15), pick(g, 0, 30, 45))
}

func (g generator) moment(zone string) string {
	if g.IntN(10) == 0 {
		return pick(g, "infinity", "-infinity", "294276-12-31 23:59:59", "4713-02-01 00:00:00 BC")
	}
	return fmt.Sprintf("%s-%02d-%02d %s%s%s", g.year(), 1+g.IntN(12), 1+g.IntN(28), g.clock(), zone, pick(g, "", "", "", " BC"))
}

func (g generator) interval() string {
	return fmt.Sprintf("%d years %d mons %d days %d:%02d:%02d.%06d", g.IntN(400)-200, g.IntN(25)-12, g.IntN(60)-30,
		g.IntN(100)-50, g.IntN(60), g.IntN(60), g.IntN(1e6))
}

func (g generator) point() string { return "(" + g.finite() + "," + g.finite() + ")" }

func (g generator) json(alphabet string, depth int) string {
	switch n := g.IntN(8); {
	case n == 0 && depth > 0:
		return "[" + g.json(alphabet, depth-1) + " ,  " + g.json(alphabet, depth-1) + "]"
	case n < 3 && depth > 0:
		return `{"b": ` + g.json(alphabet, depth-1) + `, "a":` + g.json(alphabet, depth-1) + `, "b" : null}`
	case n == 3:
		return strconv.Quote(strings.Map(func(r rune) rune {
			if r < ' ' || r == '"' || r == '\\' || r == 0x7f {
				return 'x'
			}
			return r
		}, g.text(alphabet, 10)))
	case n == 4:
		return pick(g, "1e400", "1.0", "-0", "12345678901234567890123456789.10", "true", "null", `"\u0041\n"`)
	}
	return g.finite()
}

func (g generator) array(of func() string) string {
	quoted := func() string {
		if g.IntN(6) == 0 {
			return "NULL"
		}
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(of()) + `"`
	}
	switch g.IntN(5) {
	case 0:
		return "{}"
	case 1:
		return fmt.Sprintf("[-2:-1][7:7]={{%s},{%s}}", quoted(), quoted())
	case 2:
		return fmt.Sprintf("[5:6]={%s,%s}", quoted(), quoted())
	}
	return fmt.Sprintf("{%s,%s,%s}", quoted(), quoted(), quoted())
}

func (g generator) bounds(a, b string) string {
	return pick(g, "[", "(") + pick(g, "", a) + "," + pick(g, "", b) + pick(g, "]", ")")
}

// kinds returns PostgreSQL's types, each with a function that makes a random value. If the source's
// table refuses a value, the test makes another value.
func (g generator) kinds(alphabet string) map[string]func() string {
	text := func() string { return g.text(alphabet, 30) }
	short := func() string { return g.text(alphabet, 5) }
	integer := func() string { return g.integer(32) }
	moment := func() string { return g.moment(g.zone()) }
	all := map[string]func() string{
		"boolean": func() string { return pick(g, "t", "f") }, "smallint": func() string { return g.integer(16) },
		"integer": integer, "bigint": func() string { return g.integer(64) },
		"real": func() string { return g.float(32) }, "double precision": func() string { return g.float(64) },
		"numeric": g.numeric, "numeric(12,3)": func() string { return g.finite() },
		"money": func() string { return pick(g, "", "-") + g.digits(12) + "." + g.digits(1) + "0" },
		"text":  text, "varchar(30)": text, "char(30)": text, `"char"`: func() string { return g.text(alphabet, 1) },
		"name": text, "bytea": func() string { return `\x` + g.hex(g.IntN(40)) },
		"bit(5)": func() string { return g.bitString(5) }, "bit varying(9)": func() string { return g.bitString(g.IntN(10)) },
		"uuid": func() string { return g.hex(16) }, "date": g.date, "time": g.clock, "time(0)": g.clock,
		"timetz":    func() string { return g.clock() + g.zone() },
		"timestamp": func() string { return g.moment("") }, "timestamptz": moment, "timestamptz(3)": moment,
		"interval": g.interval, "json": func() string { return g.json(alphabet, 3) },
		"jsonb": func() string { return g.json(alphabet, 3) },
		"xml": func() string {
			return pick(g, "", "<a>"+g.finite()+"</a>", "text <b/> <c>&amp;</c>", "<?xml version='1.0'?><a/>")
		},
		"inet": func() string {
			return fmt.Sprintf("%d.0.2.%d%s", g.IntN(256), g.IntN(256), pick(g, "", "/"+strconv.Itoa(g.IntN(33))))
		},
		"cidr":     func() string { return pick(g, "10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32", "::ffff:1.2.3.0/120") },
		"macaddr":  func() string { return g.hex(6) },
		"macaddr8": func() string { return g.hex(8) },
		"point":    g.point, "line": func() string { return "{" + g.finite() + "," + g.finite() + "," + g.finite() + "}" },
		"lseg": func() string { return "[" + g.point() + "," + g.point() + "]" },
		"box":  func() string { return g.point() + "," + g.point() },
		"path": func() string { return pick(g, "[", "(") + g.point() + "," + g.point() + "]" },
		"polygon": func() string {
			return "(" + g.point() + "," + g.point() + "," + g.point() + ")"
		},
		"circle":   func() string { return "<" + g.point() + "," + g.digits(3) + ">" },
		"tsvector": func() string { return pick(g, "'a b':1A,3 c:2B", "''", "fat:2,4 cat:3 rat:5A", `'it''s':1`) },
		"tsquery":  func() string { return pick(g, "'fat' & ( 'rat' | !'cat' )", "'a b' <2> 'c':*AB", "''") },
		"jsonpath": func() string { return pick(g, "$.a[*] ? (@.b > 1)", "strict $", `$."x y"`) },
		"int4range": func() string {
			return pick(g, "empty", g.bounds(strconv.Itoa(-g.IntN(99)), strconv.Itoa(g.IntN(99))))
		},
		"numrange":      func() string { return g.bounds("-"+g.digits(5)+".10", g.digits(5)) },
		"tstzrange":     func() string { return g.bounds("0001-01-01 00:00:00+00 BC", moment()) },
		"daterange":     func() string { return g.bounds("0001-01-01", g.date()) },
		"nummultirange": func() string { return "{" + g.bounds("-9.50", "-1") + ",[1,1]," + g.bounds("2", "5.0") + "}" },
		"oid":           func() string { return strconv.FormatUint(uint64(g.Uint32()), 10) },
		"xid8":          func() string { return strconv.FormatUint(g.Uint64(), 10) },
		"pg_lsn":        func() string { return g.hex(4) + "/" + g.hex(4) },
		"tid":           func() string { return "(" + g.digits(6) + "," + g.digits(4) + ")" },
		"pg_snapshot":   func() string { return pick(g, "10:20:10,14,15", "1:1:") }, "regtype": func() string { return pick(g, "integer", "text[]", "23") },
		"mood":      func() string { return pick(g, "sad", "so so", "NULL", `it's "fine"`, "") },
		"email":     short,
		"pair":      func() string { return pick(g, "(,)", `(1,"")`, "(,NULL)", "("+integer()+`,"a, ""b"" \\\\ c")`) },
		"pair[]":    func() string { return pick(g, `{"(,)",NULL}`, `{"(1,\"a b\")"}`, "{}") },
		"mood[]":    func() string { return pick(g, `{"so so","NULL",NULL,""}`, "{sad}") },
		"box[]":     func() string { return "{(1,2),(3,4);(5,6),(7,8)}" },
		"jsonb[]":   func() string { return g.array(func() string { return g.json(alphabet, 2) }) },
		"numeric[]": func() string { return g.array(g.numeric) }, "integer[]": func() string { return g.array(integer) },
		"text[]": func() string { return g.array(text) }, "varchar(5)[]": func() string { return g.array(short) },
		"bytea[]":       func() string { return g.array(func() string { return `\x` + g.hex(g.IntN(9)) }) },
		"timestamptz[]": func() string { return g.array(moment) }, "interval[]": func() string { return g.array(g.interval) },
		"double precision[]": func() string { return g.array(func() string { return g.float(64) }) },
	}
	return all
}

// oddSettings are settings for the sessions of a role. The copied values must not depend on them.
var oddSettings = []string{"extra_float_digits = -10", "datestyle = 'SQL, DMY'", "intervalstyle = sql_standard",
	"timezone = 'Asia/Kolkata'", "bytea_output = escape", "array_nulls = off", "xmloption = document",
	"quote_all_identifiers = on", "client_encoding = LATIN1", "search_path = other", "lc_monetary = 'C.utf8'",
	"standard_conforming_strings = off", "transform_null_equals = on", "default_transaction_isolation = 'serializable'"}

// differential copies a table of one type to another table, while workers and servers are killed.
type differential struct {
	t        *testing.T
	s        *pgtest.Server
	spec     pipeletapi.PostgreSQL
	rows     uint64 // number of rows in the source
	g        generator
	kill     bool
	kills    int
	refusals map[string]string
}

// run copies all rows. It kills workers meanwhile. It returns the keys of the rows that the
// destination refused.
func (d *differential) run(to pipeletapi.PostgreSQL, name string, eoio bool) {
	t, ctx := d.t, d.t.Context()
	var source *postgresql.Source
	var out *postgresql.Sink
	var at exactlyonce.State
	end := func() {
		if source != nil {
			source.Close()
			out.Close()
		}
		source = nil
	}
	defer end()
	begin := func() error {
		end()
		var err error
		if source, err = postgresql.NewSource(d.spec, nil); err != nil {
			t.Fatal(err)
		}
		if out, err = postgresql.NewSink(to, nil, name, eoio); err != nil {
			t.Fatal(err)
		}
		at, err = out.Open(ctx)
		return err
	}
	limit := time.Now().Add(5 * time.Minute)
	for failed := begin(); ; {
		if time.Now().After(limit) {
			t.Fatalf("%s: it does not end: %v", to.Table, failed)
		}
		if failed != nil {
			time.Sleep(20 * time.Millisecond)
			failed = begin()
			continue
		}
		wait, cancel := context.WithTimeout(ctx, time.Second)
		records, next, err := source.Read(wait, at.Position, 1+d.g.IntN(100))
		cancel()
		if exactlyonce.KindOf(err) == exactlyonce.Refused {
			t.Fatalf("%s: what the source has is refused: %v", to.Table, err)
		}
		if failed = err; err != nil {
			continue
		}
		if len(records) == 0 { // either all rows were read, or the server is slow
			if at.Rows >= d.rows {
				return
			}
			continue
		}
		dying := make(chan struct{})
		die := d.kill && d.g.IntN(4) == 0
		how, when := d.g.IntN(8), time.Duration(d.g.IntN(20))*time.Millisecond
		go func() {
			defer close(dying)
			if !die {
				return
			}
			time.Sleep(when)
			if how == 0 {
				d.s.Kill()
				return
			}
			if c, err := pgx.Connect(context.Background(), "postgres://netcraq@"+d.s.Address+"/postgres?sslmode=disable"); err == nil {
				_, _ = c.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'netcraq-pipelets'")
				c.Close(context.Background())
			}
		}()
		var rows []endpoint.Row
		for _, r := range records {
			rows = append(rows, endpoint.Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted})
		}
		then := exactlyonce.State{Position: next, Rows: at.Rows + uint64(len(rows))}
		failed = out.Commit(ctx, at, then, rows)
		<-dying
		if die {
			d.kills++
			if how == 0 {
				d.s.Start()
			}
			failed = begin() // start another worker, which continues from the destination's state
		}
		switch {
		// write the rows one by one, to find the refused row
		case exactlyonce.KindOf(failed) == exactlyonce.Refused && len(rows) > 1:
			failed = d.single(out, &at, records)
		case exactlyonce.KindOf(failed) == exactlyonce.Refused:
			d.refuse(rows[0], failed)
			failed = out.Commit(ctx, at, then, nil)
		}
		if failed == nil && !die {
			at = then
		}
	}
}

func (d *differential) refuse(r endpoint.Row, why error) {
	d.refusals[r.Key] = why.Error()
}

// single writes records one at a time, and skips records that the destination refuses.
func (d *differential) single(out *postgresql.Sink, at *exactlyonce.State, records []endpoint.Record) error {
	ctx := d.t.Context()
	state, err := out.Open(ctx)
	if err != nil {
		return err
	}
	for _, r := range records {
		then := exactlyonce.State{Position: r.At, Rows: state.Rows + 1}
		row := endpoint.Row{Key: r.Key, Value: r.Value, Deleted: r.Deleted}
		if err := out.Commit(ctx, state, then, []endpoint.Row{row}); exactlyonce.KindOf(err) == exactlyonce.Refused {
			d.refuse(row, err)
			if state, err = out.Open(ctx); err != nil {
				return err
			}
			if err := out.Commit(ctx, state, then, nil); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		state = then
	}
	*at = state
	return nil
}

// TestDifferential copies random values of every type from one table to another. The databases have
// several encodings, and the roles have settings that change how values are printed as text.
// Workers and servers are killed meanwhile. Each value must arrive unchanged, to the byte, or be
// refused with a clear error.
func TestDifferential(t *testing.T) {
	s := pgtest.New(t)
	seed := uint64(time.Now().UnixNano())
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	t.Logf("seed %d", seed)
	ctx := t.Context()
	alphabets := map[string]string{"utf": "äßéΩжあ漢🙂\u0301\u200d", "latin": "äßéÿ¡", "koi": "жЯё", "euc": "あ漢ン"}
	encodings := map[string]string{"utf": "UTF8", "latin": "LATIN1", "koi": "KOI8R", "euc": "EUC_JP"}
	for name, encoding := range encodings {
		s.Do(fmt.Sprintf("CREATE DATABASE %s ENCODING '%s' LOCALE 'C' TEMPLATE template0", name, encoding))
	}
	connect := func(database string) *pgx.Conn {
		c, err := pgx.Connect(ctx, "postgres://netcraq@"+s.Address+"/"+database+
			"?sslmode=disable&client_encoding=UTF8&datestyle=ISO&array_nulls=on&xmloption=content&search_path=public&intervalstyle=postgres&timezone=UTC&extra_float_digits=3&standard_conforming_strings=on&default_query_exec_mode=simple_protocol&bytea_output=hex&default_transaction_isolation=read%20committed")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	exec := func(c *pgx.Conn, q string) {
		t.Helper()
		if _, err := c.Exec(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	types := []string{"CREATE TYPE mood AS ENUM ('sad', 'so so', 'NULL', 'it''s \"fine\"', '')",
		"CREATE DOMAIN email AS varchar(5)", "CREATE TYPE pair AS (a int, b text)"}
	for name := range encodings {
		c := connect(name)
		for _, q := range types {
			exec(c, q)
		}
		c.Close(ctx)
	}
	for _, set := range oddSettings {
		s.Do("ALTER ROLE netcraq SET " + set)
	}
	d := &differential{t: t, s: s, g: g, kill: true, refusals: map[string]string{}}
	sent, same, refused, deleted, tables := 0, 0, 0, 0, 0
	each := 10
	if *differentialRows >= 10_000 {
		each = *differentialRows/len(alphabets)/len(g.kinds("")) + 1
	}
	i := 0
	for _, from := range slices.Sorted(maps.Keys(alphabets)) {
		alphabet := alphabets[from]
		kinds := g.kinds(alphabet)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			value := kinds[kind]
			to := from
			if i++; i%2 == 0 {
				to = pick(g, "utf", "latin", "koi", "euc")
			}
			// a short run tests only some of the tables, chosen at random
			if *differentialRows < 10_000 && g.IntN(20) > 0 {
				continue
			}
			tables++
			src, dst := fmt.Sprint("src", i), fmt.Sprint("dst", i)
			c := connect(from)
			exec(c, strings.NewReplacer("value text", "value "+kind, "src", src).Replace(sourceTable))
			for n := range each {
				for try := 0; ; try++ {
					k, v := fmt.Sprintf("%d %d %s", i, n, g.text(pick(g, alphabet, ""), 8)), any(value())
					if g.IntN(20) == 0 {
						v = nil
					}
					q := fmt.Sprintf("INSERT INTO %s (key, value) VALUES ($1, $2::text::%s)", src, kind)
					if strings.HasPrefix(kind, "var") || strings.HasPrefix(kind, "char") || strings.HasPrefix(kind, "bit") {
						q = fmt.Sprintf("INSERT INTO %s (key, value) VALUES ($1, $2)", src)
					}
					_, err := c.Exec(ctx, q, k, v)
					if err == nil {
						break
					}
					if try == 200 {
						t.Fatalf("%s %s: no value that its own table takes: %v", from, kind, err)
					}
				}
			}
			if n := g.IntN(each); g.IntN(2) == 0 { // half of the changes give an existing key a NULL value
				exec(c, fmt.Sprintf("INSERT INTO %s (key, value) SELECT key, NULL FROM %s WHERE seq = %d", src, src, n))
			}
			if err := c.QueryRow(ctx, "SELECT count(*) FROM "+src).Scan(&d.rows); err != nil {
				t.Fatal(err)
			}
			c.Close(ctx)
			o := connect(to)
			exec(o, fmt.Sprintf("CREATE TABLE %s (key text PRIMARY KEY, value %s)", dst, kind))
			o.Close(ctx)
			d.spec = pipeletapi.PostgreSQL{Address: s.Address, Database: from, Table: src}
			clear(d.refusals)
			d.run(pipeletapi.PostgreSQL{Address: s.Address, Database: to, Table: dst}, dst, i%3 > 0)

			// rows returns the rows of a table as text. For text and bytea values it also returns
			// the bytes of the original type.
			rows := func(database, table string) map[string]string {
				c := connect(database)
				defer c.Close(ctx)
				order := "(SELECT DISTINCT ON (key) key, value FROM " + table + " ORDER BY key, xid DESC, seq DESC) AS last"
				if table == dst {
					order = table
				}
				r, err := c.Query(ctx, "SELECT key, value::text, value IS NOT DISTINCT FROM NULL, length(value::text) FROM "+order)
				if err != nil {
					t.Fatal(err)
				}
				all := map[string]string{}
				var key string
				var value *string
				var null bool
				var length *int
				_, err = pgx.ForEachRow(r, []any{&key, &value, &null, &length}, func() error {
					if null {
						return nil
					}
					all[key] = *value
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			want, got := rows(from, src), rows(to, dst)
			for key, value := range want {
				sent++
				why, no := d.refusals[key]
				switch g, ok := got[key]; {
				case ok && g == value:
					same++
				case !ok && no && from != to && why != "":
					refused++
				default:
					t.Errorf("%s to %s, %s: %q is %q (%v), want %q (%s)", from, to, kind, key, g, ok, value, why)
				}
			}
			for key, value := range got {
				if _, ok := want[key]; !ok {
					t.Errorf("%s to %s, %s: %q is %q, and was deleted or never there", from, to, kind, key, value)
				}
			}
			deleted += each - len(want)
			if from == to {
				c := connect(from)
				var differ int
				err := c.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT DISTINCT ON (key) key, value FROM %s
					ORDER BY key, xid DESC, seq DESC) s JOIN (SELECT key, value FROM %s) d ON s.key = d.key
					WHERE NOT (s *= d)`,
					src, dst)).Scan(&differ)
				if err != nil || differ > 0 {
					t.Errorf("%s, %s: %d values are not the same to the byte, %v", from, kind, differ, err)
				}
				c.Close(ctx)
			}
		}
	}
	t.Logf("%d values of %d tables: %d arrived as they were, %d were refused, %d are deletions; %d times a worker or a "+
		"server died", sent, tables, same, refused, deleted, d.kills)
	if same < sent/2 || d.kills == 0 || *differentialRows > 0 && refused == 0 {
		t.Error("too little happened")
	}
}
