// Package flow runs a pipelet's SELECT over batches of Arrow's columns, in DuckDB.
package flow

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
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

// Flow is a SELECT that was compiled. It is for one goroutine.
type Flow struct {
	db    *sql.DB
	conn  *sql.Conn
	query string
}

// Compile checks a SELECT. What is wrong is said with its place.
func Compile(ctx context.Context, query string) (_ *Flow, err error) {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return nil, err
	}
	f := &Flow{db: db}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, s := range settings {
		if _, err := f.conn.ExecContext(ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
	}
	query = strings.TrimRight(strings.TrimSpace(query), "; \n\t")
	if query == "" {
		return nil, core.Errorf(core.Wrong, "the flow is to be a SELECT over the table src, and is empty")
	}
	// Only a SELECT has a serialized form.
	var tree string
	if err := f.conn.QueryRowContext(ctx, "SELECT json_serialize_sql(?::VARCHAR)::VARCHAR", query).Scan(&tree); err != nil {
		return nil, wrong(err)
	}
	if !strings.HasPrefix(tree, `{"error":false`) {
		return nil, f.why(ctx, query, tree)
	}
	if n := strings.Count(tree, `{"node":{"type":"SELECT_NODE"`); strings.Contains(query, ";") && n != 1 {
		return nil, core.Errorf(core.Wrong, "the flow is to be one SELECT")
	}
	f.query = query
	_, err = f.Run(ctx, nil)
	return f, err
}

// why says what is wrong with a query that is no SELECT, or none that can be read.
func (f *Flow) why(ctx context.Context, query, tree string) error {
	s, err := f.conn.PrepareContext(ctx, query)
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
	if f.conn != nil {
		f.conn.Close()
	}
	return f.db.Close()
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
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	src := batch(records)
	defer src.Release()
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{src})
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	err = f.conn.Raw(func(c any) error {
		a, err := duckdb.NewArrowFromConn(c.(driver.Conn))
		if err != nil {
			return err
		}
		if err := load(ctx, a, reader); err != nil {
			return err
		}
		out, err := a.QueryContext(ctx, f.query)
		if err != nil {
			return wrong(err)
		}
		defer out.Release()
		rows, err = take(out)
		return err
	})
	return rows, err
}

// load makes the table src of a batch. DuckDB does not heed the columns and conditions that are
// pushed down to its scan of Arrow, and does not say so: it is given none here. The flow never sees
// the scan, whose memory ends with this.
func load(ctx context.Context, a *duckdb.Arrow, reader array.RecordReader) error {
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
