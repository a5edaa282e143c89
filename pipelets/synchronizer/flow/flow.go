// Package flow runs a pipelet's SELECT over batches of Arrow's columns, in DuckDB.
package flow

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
)

// runTimeout bounds a flow's run over a batch.
const runTimeout = 10 * time.Second

// compileTimeout bounds a flow's run over nothing.
const compileTimeout = 3 * time.Second

// settings keep a flow to its batch: no files, no networks, no extensions, and no way back.
var settings = []string{
	"SET threads = 1",
	"SET memory_limit = '512MB'",
	"SET temp_directory = ''",
	"SET autoinstall_known_extensions = false",
	"SET autoload_known_extensions = false",
	"SET enable_external_access = false",
	"SET lock_configuration = true",
}

// schema is that of the table src.
var schema = arrow.NewSchema([]arrow.Field{
	{Name: "key", Type: arrow.BinaryTypes.String},
	{Name: "value", Type: arrow.BinaryTypes.String, Nullable: true}, // NULL: deleted, or no UTF-8
	{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "deleted", Type: arrow.FixedWidthTypes.Boolean},
	{Name: "version", Type: arrow.PrimitiveTypes.Uint64},
}, nil)

// Engine is a DuckDB for the flows over one source. What uses it waits for its turn.
type Engine struct {
	turn   chan struct{} // has one element while nobody uses the engine
	db     *sql.DB
	conn   *sql.Conn
	loaded string // the batch that is in the table src; "": none that has a name
	// Loads and Runs count batches that were loaded and flows that were run.
	Loads, Runs atomic.Uint64
}

// Open makes an engine.
func Open(ctx context.Context) (*Engine, error) {
	e := &Engine{turn: make(chan struct{}, 1)}
	if err := e.open(ctx); err != nil {
		e.close()
		return nil, err
	}
	e.turn <- struct{}{}
	return e, nil
}

func (e *Engine) open(ctx context.Context) (err error) {
	if e.db, err = sql.Open("duckdb", ""); err != nil {
		return err
	}
	if e.conn, err = e.db.Conn(ctx); err != nil {
		return err
	}
	for _, s := range settings {
		if _, err := e.conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (e *Engine) close() {
	if e.conn != nil {
		e.conn.Close()
	}
	if e.db != nil {
		e.db.Close()
	}
	e.conn, e.db, e.loaded = nil, nil, ""
}

// Close ends it, when who uses it is done.
func (e *Engine) Close() error {
	<-e.turn
	e.close()
	return nil
}

// take waits for the engine, and opens it again if an error has closed it.
func (e *Engine) take(ctx context.Context) error {
	select {
	case <-e.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.db != nil {
		return nil
	}
	err := e.open(ctx)
	if err != nil {
		e.close()
		e.turn <- struct{}{}
	}
	return err
}

// give has the next one use it. After an error it is closed: some leave a DuckDB that fails with
// everything.
func (e *Engine) give(err error) {
	if err != nil {
		e.close()
	}
	e.turn <- struct{}{}
}

// Flow is a SELECT that was compiled.
type Flow struct {
	engine *Engine
	own    bool
	query  string
}

// Compile checks a SELECT and gives it an engine of its own. What is wrong is said with its place.
func Compile(ctx context.Context, query string) (*Flow, error) {
	e, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	f, err := e.Compile(ctx, query)
	if err != nil {
		e.Close()
		return nil, err
	}
	f.own = true
	return f, nil
}

// Compile checks a SELECT. What is wrong is said with its place.
func (e *Engine) Compile(ctx context.Context, query string) (_ *Flow, err error) {
	query = strings.TrimRight(strings.TrimSpace(query), "; \n\t")
	if query == "" {
		return nil, core.Errorf(core.Wrong, "the flow is to be a SELECT over the table src, and is empty")
	}
	if err := e.selects(ctx, query); err != nil {
		return nil, err
	}
	f := &Flow{engine: e, query: query}
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	_, err = f.Run(ctx, nil)
	return f, err
}

// selects fails where a query is no SELECT. Only a SELECT has a serialized form.
func (e *Engine) selects(ctx context.Context, query string) (err error) {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer func() { e.give(err) }()
	var tree string
	if err := e.conn.QueryRowContext(ctx, "SELECT json_serialize_sql(?::VARCHAR)::VARCHAR", query).Scan(&tree); err != nil {
		return wrong(err)
	}
	if !strings.HasPrefix(tree, `{"error":false`) {
		return e.why(ctx, query, tree)
	}
	if n := strings.Count(tree, `{"node":{"type":"SELECT_NODE"`); strings.Contains(query, ";") && n != 1 {
		return core.Errorf(core.Wrong, "the flow is to be one SELECT")
	}
	return nil
}

// why says what is wrong with a query that is no SELECT, or none that can be read.
func (e *Engine) why(ctx context.Context, query, tree string) error {
	s, err := e.conn.PrepareContext(ctx, query)
	if err != nil && strings.Contains(tree, `"parser"`) {
		return wrong(err)
	}
	if s != nil {
		s.Close()
	}
	return core.Errorf(core.Wrong, "the flow is to be a SELECT over the table src")
}

func wrong(err error) error { return core.Errorf(core.Wrong, "the flow: %w", err) }

// Close ends it.
func (f *Flow) Close() error {
	if f.own {
		return f.engine.Close()
	}
	return nil
}

// batch makes columns of records.
func batch(records []store.Record) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range records {
		b.Field(0).(*array.StringBuilder).Append(strings.ToValidUTF8(r.Key, "\uFFFD"))
		if r.Deleted {
			b.Field(1).AppendNull()
			b.Field(2).AppendNull()
		} else {
			if utf8.Valid(r.Value) {
				b.Field(1).(*array.StringBuilder).Append(string(r.Value))
			} else {
				b.Field(1).AppendNull()
			}
			b.Field(2).(*array.BinaryBuilder).Append(r.Value)
		}
		b.Field(3).(*array.BooleanBuilder).Append(r.Deleted)
		b.Field(4).(*array.Uint64Builder).Append(r.Version)
	}
	return b.NewRecordBatch()
}

// Run makes rows of records. Its columns key and value are what is written; a row whose value is
// NULL deletes its key.
func (f *Flow) Run(ctx context.Context, records []store.Record) (rows []store.Row, err error) {
	rows, _, err = f.RunBatch(ctx, "", records)
	return rows, err
}

// RunBatch is Run over a batch that has a name: it is not loaded again for the next flow over it.
// It says how long it took when it was its turn.
func (f *Flow) RunBatch(ctx context.Context, name string, records []store.Record) (rows []store.Row,
	took time.Duration, err error) {
	e := f.engine
	if err := e.take(ctx); err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	defer func() { e.give(err) }()
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	err = e.conn.Raw(func(c any) error {
		a, err := duckdb.NewArrowFromConn(c.(driver.Conn))
		if err != nil {
			return err
		}
		if name == "" || e.loaded != name {
			e.loaded = ""
			if err := e.load(ctx, a, records); err != nil {
				return err
			}
			e.loaded = name
		}
		e.Runs.Add(1)
		out, err := a.QueryContext(ctx, f.query)
		if err != nil {
			return wrong(err)
		}
		defer out.Release()
		rows, err = take(out)
		return err
	})
	return rows, time.Since(begin), err
}

// load makes the table src of a batch. DuckDB does not heed the columns and conditions that are
// pushed down to its scan of Arrow, and does not say so: it is given none here. The flow never sees
// the scan, whose memory ends with this.
func (e *Engine) load(ctx context.Context, a *duckdb.Arrow, records []store.Record) error {
	e.Loads.Add(1)
	src := batch(records)
	defer src.Release()
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{src})
	if err != nil {
		return err
	}
	defer reader.Release()
	release, err := a.RegisterView(reader, "arrow_batch")
	if err != nil {
		return err
	}
	defer release()
	for _, q := range []string{
		"CREATE OR REPLACE TEMP TABLE src AS SELECT * FROM arrow_batch",
		"DROP VIEW arrow_batch",
	} {
		out, err := a.QueryContext(ctx, q)
		if err != nil {
			return err
		}
		out.Release()
	}
	return nil
}

// take reads the columns that are written.
func take(out array.RecordReader) (rows []store.Row, err error) {
	column := func(name string) (int, error) {
		at := out.Schema().FieldIndices(name)
		if len(at) != 1 {
			return 0, core.Errorf(core.Wrong, "the flow: it is to have one column %s, and has %d", name, len(at))
		}
		return at[0], nil
	}
	k, err := column("key")
	if err != nil {
		return nil, err
	}
	v, err := column("value")
	if err != nil {
		return nil, err
	}
	for out.Next() {
		b := out.RecordBatch()
		for i := range int(b.NumRows()) {
			if b.Column(k).IsNull(i) {
				return nil, core.Errorf(core.Wrong, "the flow: a row's key is NULL")
			}
			row := store.Row{Key: string(cell(b.Column(k), i)), Deleted: b.Column(v).IsNull(i)}
			if !row.Deleted {
				row.Value = cell(b.Column(v), i)
			}
			rows = append(rows, row)
		}
	}
	if err := out.Err(); err != nil {
		return nil, wrong(err)
	}
	return rows, nil
}

// cell is a copy: the columns are DuckDB's.
func cell(a arrow.Array, i int) []byte {
	switch a := a.(type) {
	case *array.Binary:
		return append([]byte{}, a.Value(i)...)
	case *array.String:
		return []byte(a.Value(i))
	}
	return []byte(a.ValueStr(i))
}
