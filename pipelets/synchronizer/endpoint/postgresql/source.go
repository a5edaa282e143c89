package postgresql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const (
	// pause is the interval at which Source queries for new rows.
	pause = 50 * time.Millisecond
	// maxBatch is the maximum total size, in bytes, of the keys and values that one read returns. A
	// single record may be larger.
	maxBatch = 16 << 20
)

// Source reads a table into which rows are inserted. The table must have these columns:
//
//	key   text
//	value text, bytea, ...; NULL: the key is deleted
//	seq   bigint, by DEFAULT nextval or as an identity: the order within a transaction
//	xid   xid8 DEFAULT pg_current_xact_id(): the order of transactions
//
// The Version of a record is its seq.
type Source struct {
	link
	table string // quoted name of the source's table
	value string // SQL expression for the column value as bytes
	epoch string
	few   int // maximum number of rows of a query while rows are large; 0 means as many as the reader requests
}

// NewSource makes a source.
func NewSource(spec pipeletapi.PostgreSQL, secrets endpoint.Secrets) (*Source, error) {
	return &Source{link: link{spec: spec, secrets: secrets}, table: identifier(spec.Table).Sanitize()}, nil
}

// Close closes the connection.
func (s *Source) Close() error {
	s.lose()
	return nil
}

// Read implements endpoint.Source. The Seq of a position is the transaction's ID, and Sub is the
// seq of the row.
func (s *Source) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	for {
		records, err := s.read(ctx, from, most)
		switch {
		case ctx.Err() != nil && len(records) == 0:
			s.lose() // reset the connection, because a query was interrupted
			return nil, from, nil
		case err != nil:
			s.lose()
			if _, large := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); large {
				err = exactlyonce.Errorf(exactlyonce.Refused, "%w", err)
			}
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

func (s *Source) read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record, error) {
	c, fresh, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	xmin := uint64(math.MaxUint64)
	if fresh {
		if xmin, err = s.look(ctx, c); err != nil {
			return nil, err
		}
	}
	if from.Epoch != "" && from.Epoch != s.epoch {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "the source is the table %s, and what the destination has is of %s: give "+
			"the pipelet another name to begin anew", s.epoch, from.Epoch)
	}
	if from.Seq >= xmin {
		return nil, exactlyonce.Errorf(exactlyonce.Refused, "the source's server is at transaction %d, and transaction %d was read from "+
			"it before: it was restored from an older backup, or a standby that lacks this has taken over. Give the "+
			"pipelet another name to begin anew", xmin, from.Seq)
	}
	var after int64
	if from.Sub != "" {
		if after, err = strconv.ParseInt(from.Sub, 10, 64); err != nil {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "the position %q in the destination is no number of a row", from.Sub)
		}
	}
	// All transactions below the snapshot's xmin have ended, so no more rows can appear in that
	// range.
	limit := most
	if s.few > 0 {
		limit = min(most, s.few)
	}
	// The query requests one row more than needed. The additional row shows whether the last row
	// shares its position with another row. IS NOT DISTINCT FROM is used because IS NULL also holds
	// for a composite value whose fields are all NULL.
	rows, err := c.Query(ctx, `SELECT key, `+s.value+`, value IS NOT DISTINCT FROM NULL, seq, xid::text::bigint FROM `+s.table+`
		WHERE (xid, seq) > ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY xid, seq LIMIT $3`, strconv.FormatUint(from.Seq, 10), after, limit+1)
	if err != nil {
		return nil, fault(err, "reading "+s.table)
	}
	defer rows.Close()
	var records []endpoint.Record
	var odd error // error of the first row that cannot be read
	size, full := 0, false
	for odd == nil && !full && rows.Next() {
		var r endpoint.Record
		var key *string
		var seq, xid int64
		if err := rows.Scan(&key, &r.Value, &r.Deleted, &seq, &xid); err != nil {
			return nil, fault(err, "reading "+s.table)
		}
		r.Version = uint64(seq)
		r.At = exactlyonce.Position{Epoch: s.epoch, Seq: uint64(xid), Sub: strconv.FormatInt(seq, 10)}
		last := len(records) - 1
		if size += len(r.Value); key != nil {
			size += len(*key)
		}
		switch {
		case last >= 0 && records[last].At == r.At:
			records = records[:last]
			odd = exactlyonce.Errorf(exactlyonce.Refused, "several rows of transaction %d in %s have the seq %d, which is the order in "+
				"which they are read: give each another one, and make seq GENERATED ALWAYS AS IDENTITY", xid, s.table, seq)
		case last+1 == limit:
		case last >= 0 && size > maxBatch:
			full = true
		case key == nil:
			odd = exactlyonce.Errorf(exactlyonce.Refused, "the row of transaction %d in %s with the seq %d has no key: give it one or "+
				"delete it, and make key NOT NULL", xid, s.table, seq)
		default:
			r.Key = *key
			records = append(records, r)
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fault(err, "reading "+s.table)
	}
	if full { // discard the remaining rows
		s.few = len(records)
	} else if s.few = 2 * s.few; s.few > most {
		s.few = 0
	}
	if len(records) > 0 { // return the records that precede the unreadable row first
		return records, nil
	}
	return nil, odd
}

// look identifies the table and its cluster, and checks the columns of the table. It returns the
// snapshot's xmin. All rows that were read earlier have a lower transaction ID, unless the server
// was restored.
func (s *Source) look(ctx context.Context, c *pgx.Conn) (xmin uint64, err error) {
	var system, oid int64
	var columns int
	var bytes, nulls bool
	err = c.QueryRow(ctx, `SELECT (SELECT system_identifier FROM pg_control_system()),
		pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
		coalesce(to_regclass($1)::oid::bigint, 0), count(*), coalesce(bool_or(attname = 'value' AND
			atttypid = 'bytea'::regtype), false),
		coalesce(bool_or(attname IN ('seq', 'xid') AND NOT attnotnull AND
			(SELECT relkind NOT IN ('v', 'm') FROM pg_class WHERE oid = attrelid)), false)
		FROM pg_attribute WHERE attrelid = to_regclass($1) AND NOT attisdropped AND (attname IN ('key', 'value')
			OR attname = 'seq' AND atttypid = 'int8'::regtype OR attname = 'xid' AND atttypid = 'xid8'::regtype)`,
		s.table).Scan(&system, &xmin, &oid, &columns, &bytes, &nulls)
	switch {
	case err != nil:
		return 0, fault(err, "looking at the table "+s.table)
	case columns != 4:
		return 0, exactlyonce.Errorf(exactlyonce.Refused, "there is no table %s with what a source needs: make it by CREATE TABLE %s "+
			"(key text NOT NULL, value text, seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT "+
			"pg_current_xact_id()), with an index on (xid, seq)", s.table, s.table)
	case nulls: // refuse such columns, because a row with a NULL there has no position in the order
		return 0, exactlyonce.Errorf(exactlyonce.Refused, "the columns seq and xid of %s may be NULL, and rows without them would never "+
			"be read: delete such rows, and say ALTER TABLE %s ALTER seq SET NOT NULL, ALTER xid SET NOT NULL", s.table,
			s.table)
	}
	if s.value = "convert_to(value::text, 'UTF8')"; bytes {
		s.value = "value"
	}
	s.epoch = fmt.Sprintf("%x/%d", uint64(system), oid)
	return xmin, nil
}
