package flow

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/duckdb/duckdb-go/v2"

	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
)

// MaxTable bounds a state's JSON text: a destination gets it with each batch.
const MaxTable = 64 << 10

// stateTable is what a flow keeps from batch to batch.
const stateTable = "CREATE OR REPLACE TABLE state (key VARCHAR NOT NULL, value VARCHAR NOT NULL)"

// CompileStateful checks two SELECTs and gives them an engine of their own: nobody else sees the
// table state. state makes, of the tables src and state, the next table state, with columns key
// and value; a row whose value is NULL is left out. query is a flow's, over src and the next table.
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
	ctx, cancel := context.WithTimeout(ctx, CompileTimeout)
	defer cancel()
	_, _, err = f.RunStateful(ctx, nil, "")
	return f, err
}

// stateFault says that it is the state's SELECT that is wrong.
func stateFault(err error) error {
	return core.Errorf(core.KindOf(err), "the state: %w", err)
}

// RunStateful makes of records, and of the table state, rows and the next table. A flow without a
// state has none.
func (f *Flow) RunStateful(ctx context.Context, records []store.Record, was core.Table) (rows []store.Row,
	next core.Table, err error) {
	e := f.engine
	if e.state == "" {
		rows, err = f.Run(ctx, records)
		return rows, "", err
	}
	if err := e.take(ctx); err != nil {
		return nil, "", err
	}
	defer func() { e.give(err) }()
	ctx, cancel := context.WithTimeout(ctx, RunTimeout)
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
			return nil, "", core.Errorf(core.Refused, "the state that the destination has is none: %w", err)
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

// encode makes a table of rows, and its text.
func encode(rows []store.Row) (map[string]string, core.Table, error) {
	table, size := make(map[string]string, len(rows)), 0
	for _, r := range rows {
		if r.Deleted {
			continue
		}
		if _, twice := table[r.Key]; twice {
			return nil, "", core.Errorf(core.Wrong, "it has two rows with the key %q", r.Key)
		}
		if !utf8.ValidString(r.Key) || !utf8.Valid(r.Value) {
			return nil, "", core.Errorf(core.Wrong, "the row %q is no text: make text of it, by hex() say", r.Key)
		}
		if size += len(r.Key) + len(r.Value); size > MaxTable {
			break
		}
		table[r.Key] = string(r.Value)
	}
	text, err := json.Marshal(table) // its keys are sorted
	if err != nil {
		return nil, "", err
	}
	if size > MaxTable || len(text) > MaxTable {
		return nil, "", core.Errorf(core.Wrong, "it takes more than %d bytes (as JSON), which is what is kept: have it "+
			"leave out keys that are not needed any more", MaxTable)
	}
	return table, core.Table(text), nil
}

// keep puts rows into the table state.
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
