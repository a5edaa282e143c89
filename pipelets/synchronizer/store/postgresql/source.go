package postgresql

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	api "github.com/netcraq/netcraq/api/pipelet"
	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
)

// pause is between two looks for new rows.
const pause = 50 * time.Millisecond

// Source reads a table into which rows are inserted. It has the columns
//
//	key   text
//	value text, bytea, ...; NULL: the key is deleted
//	seq   bigint, by DEFAULT nextval or as an identity: the order within a transaction
//	xid   xid8 DEFAULT pg_current_xact_id(): the order of transactions
//
// A record's Version is its seq.
type Source struct {
	link
	table string // quoted
	value string // the column value as bytes
	epoch string
}

// NewSource makes a source.
func NewSource(spec api.PostgreSQL, secrets store.Secrets) (*Source, error) {
	return &Source{link: link{spec: spec, secrets: secrets}, table: identifier(spec.Table).Sanitize()}, nil
}

// Close ends it.
func (s *Source) Close() error {
	s.lose()
	return nil
}

// Read is store.Source's. Of a position, Seq is the transaction's number and Sub the row's.
func (s *Source) Read(ctx context.Context, from core.Position, most int) ([]store.Record, core.Position, error) {
	for {
		records, err := s.read(ctx, from, most)
		switch {
		case ctx.Err() != nil && len(records) == 0:
			s.lose() // a query was cut off in the middle
			return nil, from, nil
		case err != nil:
			s.lose()
			return nil, from, err
		case len(records) > 0:
			return records, records[len(records)-1].At, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, from, nil
		}
	}
}

func (s *Source) read(ctx context.Context, from core.Position, most int) ([]store.Record, error) {
	c, fresh, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := s.look(ctx, c); err != nil {
			return nil, err
		}
	}
	if from.Epoch != "" && from.Epoch != s.epoch {
		return nil, core.Errorf(core.Refused, "the source is the table %s, and what the destination has is of %s: give "+
			"the pipelet another name to begin anew", s.epoch, from.Epoch)
	}
	var after int64
	if from.Sub != "" {
		if after, err = strconv.ParseInt(from.Sub, 10, 64); err != nil {
			return nil, core.Errorf(core.Refused, "the position %q in the destination is no number of a row", from.Sub)
		}
	}
	// Below the snapshot's xmin all transactions have ended: nothing is inserted there any more.
	rows, err := c.Query(ctx, `SELECT key, `+s.value+`, value IS NULL, seq, xid::text::bigint FROM `+s.table+`
		WHERE (xid, seq) > ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY xid, seq LIMIT $3`, strconv.FormatUint(from.Seq, 10), after, most)
	if err != nil {
		return nil, fault(err, "reading "+s.table)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r store.Record, err error) {
		var seq, xid int64
		if err := row.Scan(&r.Key, &r.Value, &r.Deleted, &seq, &xid); err != nil {
			return r, err
		}
		r.Version = uint64(seq)
		r.At = core.Position{Epoch: s.epoch, Seq: uint64(xid), Sub: strconv.FormatInt(seq, 10)}
		return r, nil
	})
	return records, fault(err, "reading "+s.table)
}

// look learns which table it is: of which cluster's files, and that it has what is needed.
func (s *Source) look(ctx context.Context, c *pgx.Conn) error {
	var system, oid int64
	var columns int
	var bytes bool
	err := c.QueryRow(ctx, `SELECT (SELECT system_identifier FROM pg_control_system()),
		coalesce(to_regclass($1)::oid::bigint, 0), count(*), coalesce(bool_or(attname = 'value' AND
			atttypid = 'bytea'::regtype), false)
		FROM pg_attribute WHERE attrelid = to_regclass($1) AND NOT attisdropped AND (attname IN ('key', 'value')
			OR attname = 'seq' AND atttypid = 'int8'::regtype OR attname = 'xid' AND atttypid = 'xid8'::regtype)`,
		s.table).Scan(&system, &oid, &columns, &bytes)
	switch {
	case err != nil:
		return fault(err, "looking at the table "+s.table)
	case columns != 4:
		return core.Errorf(core.Refused, "there is no table %s with what a source needs: make it by CREATE TABLE %s "+
			"(key text NOT NULL, value text, seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT "+
			"pg_current_xact_id()), with an index on (xid, seq)", s.table, s.table)
	}
	if s.value = "convert_to(value::text, 'UTF8')"; bytes {
		s.value = "value"
	}
	s.epoch = fmt.Sprintf("%x/%d", uint64(system), oid)
	return nil
}
