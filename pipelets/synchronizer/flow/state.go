package flow

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// MaxTable is the maximum size of a state's JSON text, in bytes. It is limited because each batch
// writes the state to the destination.
const MaxTable = 64 << 10

// stateTable creates the table that a flow keeps from batch to batch.
const stateTable = "CREATE OR REPLACE TABLE state (key VARCHAR NOT NULL, value VARCHAR NOT NULL)"

// CompileStateful checks two SELECT statements, and creates a separate engine for them, so that no
// other flow sees the table state. The argument state is the SELECT that computes the next content
// of the table state from the tables src and state. Its columns are key and value, and a row whose
// value is NULL is left out. The argument query is the SELECT of the flow, over src and the new
// content of state.
func CompileStateful(ctx context.Context, query, state string) (_ *Flow, err error) {
	if state = trim(state); state == "" {
		return Compile(ctx, query)
	}
	e := &Engine{turn: make(chan struct{}, 1), state: state}
	if err := e.open(ctx); err != nil {
		e.close()
		return nil, err
	}
	e.turn <- struct{}{}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if err := e.selects(ctx, state); err != nil {
		return nil, stateFault(err)
	}
	f, err := e.Compile(ctx, query)
	if err != nil {
		return nil, err
	}
	f.own = true
	ctx, cancel := bounded(ctx, CompileTime)
	defer cancel()
	_, _, err = f.RunStateful(ctx, nil, "")
	return f, err
}

// stateFault marks an error as an error of the SELECT that computes the state.
func stateFault(err error) error {
	return exactlyonce.Errorf(exactlyonce.KindOf(err), "the state: %w", err)
}

// RunStateful computes rows and the next table from records and the current table. A flow without a
// state ignores the current table.
func (f *Flow) RunStateful(ctx context.Context, records []endpoint.Record, was exactlyonce.Table) (rows []endpoint.Row,
	next exactlyonce.Table, err error) {
	e := f.engine
	if e.state == "" {
		rows, err = f.Run(ctx, records)
		return rows, "", err
	}
	if err := e.take(ctx); err != nil {
		return nil, "", err
	}
	defer func() { e.give(err) }()
	ctx, cancel := bounded(ctx, RunTime)
	defer cancel()
	defer func() { err = late(ctx, err) }()
	e.loaded = ""
	if err := e.load(ctx, records); err != nil {
		return nil, "", err
	}
	if err := e.names(f.query, e.state); err != nil {
		return nil, "", err
	}
	table := map[string]string{}
	if was != "" {
		if err := json.Unmarshal([]byte(was), &table); err != nil {
			return nil, "", exactlyonce.Errorf(exactlyonce.Refused, "the state that the destination has is none: %w", err)
		}
	}
	if err := e.keep(ctx, table); err != nil {
		return nil, "", err
	}
	e.Runs.Add(1)
	if err := f.prepare(ctx); err != nil {
		return nil, "", err
	}
	made, err := f.rows(ctx, f.next, e.state)
	if err != nil {
		return nil, "", stateFault(err)
	}
	if table, next, err = encode(made); err != nil {
		return nil, "", stateFault(err)
	}
	if err := e.keep(ctx, table); err != nil {
		return nil, "", err
	}
	rows, err = f.rows(ctx, f.made, f.query)
	return rows, next, err
}

// encode converts rows to a table, and returns the table and its JSON text.
func encode(rows []endpoint.Row) (map[string]string, exactlyonce.Table, error) {
	table, size := make(map[string]string, len(rows)), 0
	for _, r := range rows {
		if r.Deleted {
			continue
		}
		if _, twice := table[r.Key]; twice {
			return nil, "", exactlyonce.Errorf(exactlyonce.Wrong, "it has two rows with the key %q", r.Key)
		}
		if !utf8.ValidString(r.Key) || !utf8.Valid(r.Value) {
			return nil, "", exactlyonce.Errorf(exactlyonce.Wrong, "the row %q is no text: make text of it, by hex() say", r.Key)
		}
		if size += len(r.Key) + len(r.Value); size > MaxTable {
			break
		}
		table[r.Key] = string(r.Value)
	}
	text, err := json.Marshal(table) // json.Marshal sorts the keys of the table
	if err != nil {
		return nil, "", err
	}
	if size > MaxTable || len(text) > MaxTable {
		return nil, "", exactlyonce.Errorf(exactlyonce.Wrong, "it takes more than %d bytes (as JSON), which is what is kept: have it "+
			"leave out keys that are not needed any more", MaxTable)
	}
	return table, exactlyonce.Table(text), nil
}

// keep writes rows into the table named state.
func (e *Engine) keep(ctx context.Context, table map[string]string) error {
	if _, err := e.forget.ExecContext(ctx); err != nil {
		return err
	}
	if len(table) == 0 {
		return nil
	}
	return e.conn.Raw(func(c any) error {
		a, err := duckdb.NewAppenderFromConn(c.(driver.Conn), "", "state")
		if err != nil {
			return err
		}
		for key, value := range table {
			if err := a.AppendRow(key, value); err != nil {
				return errors.Join(err, a.Close())
			}
		}
		return a.Close()
	})
}
