package postgresql

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// Sink writes rows into a table with the columns key and value.
type Sink struct {
	link
	name  string
	eoio  bool
	known string // the text of the state in the table; empty if there is none
	table string // quoted name of the destination's table
	state string // quoted name of the table with the state
	bytes bool   // the column value has the type bytea
}

// NewSink makes a destination. The argument name identifies the pipelet and its source.
func NewSink(spec pipeletapi.PostgreSQL, secrets endpoint.Secrets, name string, eoio bool) (*Sink, error) {
	id := identifier(spec.Table)
	return &Sink{
		link:  link{spec: spec, secrets: secrets},
		name:  name,
		eoio:  eoio,
		table: id.Sanitize(),
		state: pgx.Identifier{id[0], StateTable}.Sanitize(),
	}, nil
}

// Close closes the connection.
func (s *Sink) Close() error {
	s.lose()
	return nil
}

// Open implements endpoint.Sink. It creates the table for positions if the table does not exist.
func (s *Sink) Open(ctx context.Context) (state exactlyonce.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			s.lose()
		}
	}()
	// A commit with an unknown outcome may still be in progress on the old connection. The commit
	// has certainly ended when its connection has ended, or when its row can be locked.
	s.lose()
	c, _, err := s.get(ctx)
	if err != nil {
		return state, err
	}
	if err := s.look(ctx, c); err != nil {
		return state, err
	}
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.state).Scan(&there); err != nil {
		return state, fault(err, "looking for the table of positions")
	}
	if !there {
		_, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.state+
			" (name text PRIMARY KEY, state text NOT NULL, written timestamptz NOT NULL DEFAULT now())")
		if err != nil {
			return state, fault(err, "making the table of positions "+s.state)
		}
	}
	// FOR UPDATE waits for a transaction that is in progress. It may belong to another worker, or
	// to this worker's old connection.
	s.known = ""
	err = c.QueryRow(ctx, "SELECT state FROM "+s.state+" WHERE name = $1 FOR UPDATE", s.name).Scan(&s.known)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, nil
	}
	if err != nil {
		return state, fault(err, "reading the position in the destination")
	}
	if err := json.Unmarshal([]byte(s.known), &state); err != nil {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "what %s has under %s is no position: %w", s.state, s.name, err)
	}
	return state, nil
}

// look reads the types of the table's columns.
func (s *Sink) look(ctx context.Context, c *pgx.Conn) error {
	kinds := map[string]string{}
	rows, err := c.Query(ctx, `WITH RECURSIVE base (name, type) AS (
			SELECT attname, atttypid FROM pg_attribute
			WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
			UNION ALL SELECT name, typbasetype FROM base JOIN pg_type ON oid = type WHERE typtype = 'd')
		SELECT name, format_type(type, NULL) FROM base JOIN pg_type ON oid = type WHERE typtype <> 'd'`, s.table)
	if err != nil {
		return fault(err, "looking at the table "+s.table)
	}
	var name, kind string
	_, err = pgx.ForEachRow(rows, []any{&name, &kind}, func() error {
		if name == "key" || name == "value" {
			kinds[name] = kind
		}
		return nil
	})
	switch {
	case err != nil:
		return fault(err, "looking at the table "+s.table)
	case kinds["key"] == "" || kinds["value"] == "":
		return exactlyonce.Errorf(exactlyonce.Refused, "there is no table %s with the columns key and value: make it by "+
			"CREATE TABLE %s (key text PRIMARY KEY, value text)", s.table, s.table)
	}
	s.bytes = kinds["value"] == "bytea"
	return nil
}

// Commit implements endpoint.Sink.
func (s *Sink) Commit(ctx context.Context, _, next exactlyonce.State, rows []endpoint.Row) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, fresh, err := s.get(ctx)
	if err != nil {
		return exactlyonce.Errorf(exactlyonce.Temporary, "%w", err)
	}
	if fresh { // no statement was sent yet, and the table may have been replaced
		if err := s.look(ctx, c); err != nil {
			return exactlyonce.Errorf(exactlyonce.KindOf(err), "%w", err)
		}
	}
	defer func() {
		if err != nil && exactlyonce.KindOf(err) != exactlyonce.TooLarge {
			s.lose() // close the connection, which ends any transaction in progress
		}
	}()
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, r := range rows {
		if err := s.queue(b, r); err != nil {
			return err
		}
	}
	if !s.eoio {
		// Write the rows first, without a condition, because writing them twice is better than
		// losing them.
		if err := s.send(ctx, c, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue("INSERT INTO "+s.state+" (name, state) VALUES ($1, $2) "+
			"ON CONFLICT (name) DO UPDATE SET state = excluded.state, written = now()", s.name, string(text))
		if err := s.send(ctx, c, b); err != nil {
			return err
		}
		s.known = string(text)
		return nil
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return fault(err, "beginning a transaction")
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var n int64
	if s.known == "" {
		tag, err := tx.Exec(ctx, "INSERT INTO "+s.state+" (name, state) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
			s.name, string(text))
		if err != nil {
			return fault(err, "writing the position to the destination")
		}
		n = tag.RowsAffected()
	} else {
		tag, err := tx.Exec(ctx, "UPDATE "+s.state+" SET state = $3, written = now() WHERE name = $1 AND state = $2",
			s.name, s.known, string(text))
		if err != nil {
			return fault(err, "writing the position to the destination")
		}
		n = tag.RowsAffected()
	}
	if n != 1 {
		return exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
	}
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fault(err, "writing to "+s.table)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fault(err, "writing to "+s.table)
	}
	s.known = string(text)
	return nil
}

// send runs statements in one transaction.
func (s *Sink) send(ctx context.Context, c *pgx.Conn, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return fault(c.SendBatch(ctx, b).Close(), "writing to "+s.table)
}

// queue adds the statement that writes a row.
func (s *Sink) queue(b *pgx.Batch, r endpoint.Row) error {
	if !utf8.ValidString(r.Key) || strings.Contains(r.Key, "\x00") {
		return exactlyonce.Errorf(exactlyonce.Refused, "the key %q is no text of PostgreSQL's", r.Key)
	}
	// The parameter has the type of the column. The statement has no cast, because an explicit cast
	// would truncate a value to the column's length.
	var value any
	switch {
	case r.Deleted && !s.spec.Append:
		b.Queue("DELETE FROM "+s.table+" WHERE key = $1", r.Key)
		return nil
	case r.Deleted:
	case s.bytes:
		value = r.Value
	case !utf8.Valid(r.Value) || strings.Contains(string(r.Value), "\x00"):
		return exactlyonce.Errorf(exactlyonce.Refused, "the value of %q is no text, and the column value of %s is: make it bytea, "+
			"or give the pipelet a flow that makes text of it", r.Key, s.table)
	default:
		value = string(r.Value)
	}
	expr := "$2"
	if s.bytes { // this includes columns whose type is a domain over bytea
		expr += "::bytea"
	}
	q := "INSERT INTO " + s.table + " (key, value) VALUES ($1, " + expr + ")"
	if !s.spec.Append {
		q += " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
	}
	b.Queue(q, r.Key, value)
	return nil
}
