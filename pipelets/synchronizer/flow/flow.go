// Package flow runs a pipelet's SELECT statement over batches of records, in DuckDB.
//
// Batches are small, so the overhead per batch matters more than DuckDB's speed. The overhead is
// 1.2 ms if a batch is passed as Arrow and the SELECT is planned each time. This package appends
// rows to a permanent table and prepares the SELECT, and has an overhead of 0.65 ms.
//
// Because DuckDB can crash its process, package flowproc runs this package in separate processes.
package flow

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const (
	// RunTime is the maximum processor time that a flow may use for one batch.
	RunTime = 10 * time.Second
	// CompileTime is the maximum processor time that a flow may use for an empty batch when it is
	// compiled.
	CompileTime = 3 * time.Second
	// Patience is the maximum ratio of a run's elapsed time to its allowed processor time. Elapsed
	// time is longer on a busy machine.
	Patience = 5
	// MaxRows is the maximum size, in bytes, of the rows that a batch results in. The size of a row
	// is that of its key and its value plus RowBytes.
	MaxRows  = 64 << 20
	RowBytes = 64
)

// settings restrict a flow to its batch. A flow cannot use files, networks or extensions, and
// cannot undo the settings.
var settings = []string{
	"SET threads = 1",
	"SET memory_limit = '512MB'",
	"SET temp_directory = ''",
	// DuckDB plans a query for the content that the table has at that time. For an empty table it
	// may assume that a condition never holds. A prepared plan is also used for later content.
	// TestPlansAgree fails without this setting.
	"SET disabled_optimizers = 'statistics_propagation,compressed_materialization'",
	// Without these settings, DuckDB uses the process's TZ and locale, and replicas would compute
	// different values.
	"SET TimeZone = 'UTC'",
	"SET Calendar = 'gregorian'",
	"SET autoinstall_known_extensions = false",
	"SET autoload_known_extensions = false",
	"SET enable_external_access = false",
	"SET lock_configuration = true",
}

// table creates the table from which a flow selects. The column value is NULL for deletions and for
// values that are not UTF-8. The column key is NULL for keys that are not UTF-8.
const table = "CREATE OR REPLACE TABLE src (key VARCHAR, value VARCHAR, bytes BLOB, deleted BOOLEAN NOT NULL, " +
	"version UBIGINT NOT NULL, " + keyBytes + " BLOB NOT NULL)"

// keyBytes is the column that has every key as bytes. Only flows that use this column get keys that
// are not UTF-8.
const keyBytes = "key_bytes"

// renew is the number of batches after which a table is created again, because deleted rows take up
// memory in it.
const renew = 256

// Engine is a DuckDB instance for the flows over one source. Only one user at a time can use it.
type Engine struct {
	turn   chan struct{} // has one element while the engine is free
	db     *sql.DB
	conn   *sql.Conn
	loaded string // name of the batch in the table src; empty if there is none, or if it has no name
	binary string // a key of the batch in src that is not UTF-8; empty if there is none
	life   int    // number of times the engine was opened
	left   int    // number of batches for which the present table can still be used
	clear  *sql.Stmt
	state  string // the SELECT that computes the next content of the table state; empty if there is none
	forget *sql.Stmt
	// Loads and Runs count the loaded batches and the flow runs.
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
	e.life++
	e.left = 0
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
	if _, err := e.conn.ExecContext(ctx, table); err != nil {
		return err
	}
	if e.clear, err = e.conn.PrepareContext(ctx, "DELETE FROM src"); err != nil || e.state == "" {
		return err
	}
	if _, err := e.conn.ExecContext(ctx, stateTable); err != nil {
		return err
	}
	e.forget, err = e.conn.PrepareContext(ctx, "DELETE FROM state")
	return err
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

// Close closes the engine when its current user has finished.
func (e *Engine) Close() error {
	<-e.turn
	e.close()
	return nil
}

// take waits until the engine is free. If an error has closed the engine, take opens it again.
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

// give passes the engine to the next user. After an error it closes the engine, because after some
// errors a DuckDB instance fails on every query.
func (e *Engine) give(err error) {
	if err != nil {
		e.close()
	}
	e.turn <- struct{}{}
}

// Flow is a compiled SELECT statement.
type Flow struct {
	engine *Engine
	own    bool
	query  string
	made   *sql.Stmt // the prepared SELECT; valid until the engine is opened again
	next   *sql.Stmt // computes the table state; nil if the flow has no state
	life   int
}

// Compile checks a SELECT statement, and creates a separate engine for it. Errors contain the
// position in the statement.
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

// Compile checks a SELECT statement. Errors contain the position in the statement.
func (e *Engine) Compile(ctx context.Context, query string) (_ *Flow, err error) {
	query = trim(query)
	if query == "" {
		return nil, exactlyonce.Errorf(exactlyonce.Wrong, "the flow is to be a SELECT over the table src, and is empty")
	}
	if err := e.selects(ctx, query); err != nil {
		return nil, err
	}
	f := &Flow{engine: e, query: query}
	ctx, cancel := bounded(ctx, CompileTime)
	defer cancel()
	_, err = f.Run(ctx, nil)
	return f, err
}

// selects fails if a query is not a SELECT statement. DuckDB can serialize only SELECT statements.
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
		return exactlyonce.Errorf(exactlyonce.Wrong, "the flow is to be one SELECT")
	}
	return nil
}

// why returns an error that explains why a query is not a SELECT statement, or cannot be parsed.
func (e *Engine) why(ctx context.Context, query, tree string) error {
	s, err := e.conn.PrepareContext(ctx, query)
	if err != nil && strings.Contains(tree, `"parser"`) {
		return wrong(err)
	}
	if s != nil {
		s.Close()
	}
	return exactlyonce.Errorf(exactlyonce.Wrong, "the flow is to be a SELECT over the table src")
}

func trim(query string) string { return strings.TrimRight(strings.TrimSpace(query), "; \n\t") }

func wrong(err error) error { return exactlyonce.Errorf(exactlyonce.Wrong, "the flow: %w", err) }

// Close closes the flow.
func (f *Flow) Close() error {
	if f.own {
		return f.engine.Close()
	}
	return nil
}

// Run computes rows from records. The columns key and value of the SELECT become the rows. A row
// whose value is NULL deletes its key. DuckDB casts values that are neither text nor bytes to text.
func (f *Flow) Run(ctx context.Context, records []endpoint.Record) (rows []endpoint.Row, err error) {
	rows, _, err = f.RunBatch(ctx, "", records)
	return rows, err
}

// RunBatch is like Run, for a batch with a name. If the engine has already loaded this batch for
// another flow, it is not loaded again. The result took is the processor time of the SELECT,
// without the time for loading the batch.
func (f *Flow) RunBatch(ctx context.Context, name string, records []endpoint.Record) (rows []endpoint.Row,
	took time.Duration, err error) {
	e := f.engine
	if err := e.take(ctx); err != nil {
		return nil, 0, err
	}
	defer func() { e.give(err) }()
	ctx, cancel := bounded(ctx, RunTime)
	defer cancel()
	defer func() { err = late(ctx, err) }()
	if name == "" || e.loaded != name {
		e.loaded = ""
		if err := e.load(ctx, records); err != nil {
			return nil, 0, err
		}
		e.loaded = name
	}
	if err := e.names(f.query); err != nil {
		return nil, 0, err
	}
	e.Runs.Add(1)
	if err := f.prepare(ctx); err != nil {
		return nil, 0, err
	}
	// DuckDB uses a single thread here, which is the calling thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadTime()
	rows, err = f.rows(ctx, f.made, f.query)
	return rows, threadTime() - begin, err
}

// errLate is the cause of a context that has ended because a run took too long.
var errLate = errors.New("it takes too long")

// bounded returns a context that ends when this process has used the processor time most. It also
// ends after Patience times as much elapsed time. Only one flow at a time runs in a process.
func bounded(ctx context.Context, most time.Duration) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	begun, before := time.Now(), timeOf(syscall.RUSAGE_SELF)
	timer := time.NewTimer(most)
	go func() {
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			left := most - (timeOf(syscall.RUSAGE_SELF) - before)
			if left <= 0 || time.Since(begun) >= Patience*most {
				end(errLate)
				return
			}
			timer.Reset(min(max(left, 10*time.Millisecond), Patience*most-time.Since(begun)))
		}
	}()
	return ctx, func() { end(nil) }
}

// late returns an error which says that the run took too long, if that is why ctx has ended.
// Otherwise it returns err.
func late(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errLate) {
		return err
	}
	return exactlyonce.Errorf(exactlyonce.Wrong, "the flow: %w: it has %v of processor time for a batch, and %v when it is compiled. "+
		"Have it compute less", errLate, RunTime, CompileTime)
}

// threadTime returns the processor time that this thread has used.
func threadTime() time.Duration { return timeOf(syscall.RUSAGE_THREAD) }

// timeOf returns the processor time that this thread or this process has used.
func timeOf(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil { // the call cannot fail, because both values of who are valid
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// names fails if the batch has a key that is not UTF-8 and no query uses the column for such keys.
// In the column key all these keys are NULL, so they would be equal, or a condition would skip
// them.
func (e *Engine) names(queries ...string) error {
	if e.binary == "" || strings.Contains(strings.ToLower(strings.Join(queries, "\n")), keyBytes) {
		return nil
	}
	return exactlyonce.Errorf(exactlyonce.Wrong, "the flow: the key %q is not UTF-8, so it is NULL in the column key: have the flow "+
		"use the column %s (BLOB), which has every key", e.binary, keyBytes)
}

// prepare prepares the flow's statement, which returns the two columns as text or bytes.
func (f *Flow) prepare(ctx context.Context) error {
	e := f.engine
	if f.made != nil && f.life == e.life {
		return nil
	}
	made, err := e.prepare(ctx, f.query)
	if err != nil {
		return err
	}
	if e.state != "" {
		if f.next, err = e.prepare(ctx, e.state); err != nil {
			return stateFault(err)
		}
	}
	f.made, f.life = made, e.life
	return nil
}

func (e *Engine) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	out, err := e.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, wrong(err)
	}
	defer out.Close()
	types, err := out.ColumnTypes()
	if err != nil {
		return nil, err
	}
	column := func(name string) (expression string, err error) {
		n := 0
		for _, t := range types {
			if strings.EqualFold(t.Name(), name) {
				n++
				if expression = `"` + name + `"`; t.DatabaseTypeName() != "BLOB" {
					expression = "CAST(" + expression + " AS VARCHAR)"
				}
			}
		}
		if n != 1 {
			return "", exactlyonce.Errorf(exactlyonce.Wrong, "the flow: its SELECT needs exactly one column %s, and has %d: name a column with AS %s", name, n, name)
		}
		return expression, nil
	}
	key, err := column("key")
	if err != nil {
		return nil, err
	}
	value, err := column("value")
	if err != nil {
		return nil, err
	}
	out.Close()
	made, err := e.conn.PrepareContext(ctx, "SELECT "+key+", "+value+" FROM ("+query+"\n)")
	if err != nil {
		return nil, wrong(err)
	}
	return made, nil
}

// rows runs the statement made, which was prepared from query.
func (f *Flow) rows(ctx context.Context, made *sql.Stmt, query string) (rows []endpoint.Row, err error) {
	out, err := made.QueryContext(ctx)
	if err == nil {
		defer out.Close()
		for size := 0; out.Next(); {
			var key, value []byte
			if err := out.Scan(&key, &value); err != nil {
				return nil, err
			}
			if key == nil {
				return nil, exactlyonce.Errorf(exactlyonce.Wrong, "the flow: a row's key is NULL")
			}
			if size += len(key) + len(value) + RowBytes; size > MaxRows {
				return nil, exactlyonce.Errorf(exactlyonce.Wrong, "the flow: its rows take more than %d MiB, which is what a batch may "+
					"make: have it make fewer or shorter ones", MaxRows>>20)
			}
			rows = append(rows, endpoint.Row{Key: string(key), Value: value, Deleted: value == nil})
		}
		err = out.Err()
	}
	if err == nil {
		return rows, nil
	}
	if ctx.Err() == nil { // return this error, because it has a position in the flow
		again, said := f.engine.conn.QueryContext(ctx, query)
		if said == nil {
			for again.Next() {
			}
			said = again.Err()
			again.Close()
		}
		if said != nil {
			err = said
		}
	}
	return nil, wrong(err)
}

// load fills the table src with a batch.
func (e *Engine) load(ctx context.Context, records []endpoint.Record) error {
	e.Loads.Add(1)
	if e.left == 0 {
		if _, err := e.conn.ExecContext(ctx, table); err != nil {
			return err
		}
		e.left = renew
	} else if _, err := e.clear.ExecContext(ctx); err != nil {
		return err
	}
	e.left--
	e.binary = ""
	if len(records) == 0 {
		return nil
	}
	return e.conn.Raw(func(c any) error {
		a, err := duckdb.NewAppenderFromConn(c.(driver.Conn), "", "src")
		if err != nil {
			return err
		}
		for _, r := range records {
			var key, value, bytes any
			if utf8.ValidString(r.Key) {
				key = r.Key
			} else {
				e.binary = cmp.Or(e.binary, r.Key)
			}
			if !r.Deleted {
				bytes = r.Value
				if r.Value == nil {
					bytes = []byte{}
				}
				if utf8.Valid(r.Value) {
					value = string(r.Value)
				}
			}
			if err := a.AppendRow(key, value, bytes, r.Deleted, r.Version, []byte(r.Key)); err != nil {
				return errors.Join(err, a.Close())
			}
		}
		return a.Close()
	})
}
