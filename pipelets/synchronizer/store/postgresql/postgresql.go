// Package postgresql has a table of a PostgreSQL as a source and as a destination.
//
// A destination's position is a row of the table netcraq_pipelets, written in the transaction that
// writes the rows, if it is what it was: exactly once.
//
// A source is read in the order of its transactions' numbers, and only as far as all transactions
// with a lower number have ended: what is committed late, with a low number, is not passed by. A
// serial number alone would not do, since who takes a number first may commit last.
package postgresql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	api "github.com/netcraq/netcraq/api/pipelet"
	"github.com/netcraq/netcraq/pipelets/core"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store"
)

// StateTable is where a destination keeps what it knows of pipelets, in the schema of its table.
const StateTable = "netcraq_pipelets"

const callTimeout = 5 * time.Second

// Check says what is wrong with a specification.
func Check(spec api.PostgreSQL) error {
	host, port, err := net.SplitHostPort(spec.Address)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || host == "" || e != nil || n == 0 {
		return fmt.Errorf("postgresql.address: %q is not HOST:PORT", spec.Address)
	}
	if spec.Database == "" || spec.Table == "" {
		return errors.New("postgresql: database and table are needed")
	}
	if strings.Count(spec.Table, ".") > 1 || strings.HasPrefix(spec.Table, ".") || strings.HasSuffix(spec.Table, ".") {
		return fmt.Errorf("postgresql.table: %q is not TABLE or SCHEMA.TABLE", spec.Table)
	}
	return nil
}

// identifier is a table's name in parts.
func identifier(table string) pgx.Identifier {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return pgx.Identifier{schema, name}
	}
	return pgx.Identifier{"public", table}
}

// link is a connection that is made when it is needed, and anew when it was lost.
type link struct {
	spec    api.PostgreSQL
	secrets store.Secrets
	conn    *pgx.Conn
}

// get gives the connection. fresh says that it was made now.
func (l *link) get(ctx context.Context) (conn *pgx.Conn, fresh bool, err error) {
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, false, nil
	}
	cfg, err := pgx.ParseConfig("sslmode=disable") // nothing of the process's environment but this
	if err != nil {
		return nil, false, err
	}
	host, port, _ := net.SplitHostPort(l.spec.Address)
	n, _ := strconv.ParseUint(port, 10, 16)
	cfg.Host, cfg.Port, cfg.Database, cfg.Fallbacks = host, uint16(n), l.spec.Database, nil
	cfg.User, cfg.Password, cfg.TLSConfig = "netcraq", "", nil
	cfg.ConnectTimeout = callTimeout
	cfg.RuntimeParams = map[string]string{
		"application_name": "netcraq-pipelets",
		// What a worker that was cut off has begun does not hold up the next one for longer.
		"idle_in_transaction_session_timeout": "10s",
		"statement_timeout":                   "10s",
		"search_path":                         "pg_catalog",
	}
	if l.spec.Secret != "" {
		c, err := store.ReadSecret(ctx, l.secrets, l.spec.Secret)
		if err != nil {
			return nil, false, err
		}
		if c.Username != "" {
			cfg.User = c.Username
		}
		if cfg.Password = c.Password; c.TLS != nil {
			cfg.TLSConfig = c.TLS.Clone()
			cfg.TLSConfig.ServerName = host
		}
	}
	if l.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		l.conn = nil
		return nil, false, fault(err, "connecting to "+l.spec.Address)
	}
	return l.conn, true, nil
}

// lose ends a connection of which nothing is known any more.
func (l *link) lose() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.conn.Close(ctx)
		l.conn = nil
	}
}

// fault says what an error of PostgreSQL's means, by its class (documentation, appendix A).
func fault(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*core.Fault](err); known {
		return err
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) < 2 {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch e.Code[:2] {
	case "22", "23", "42", "44", "28", "3D", "3F", "0A", "25":
		// data that the table does not take, a table or a column that is another, no permission,
		// a database that is not there or takes no writes
		return core.Errorf(core.Refused, "%s: %w", what, err)
	case "53":
		if e.Code == "53100" {
			return core.Errorf(core.Refused, "%s: the database's disk is full: %w", what, err)
		}
		return core.Errorf(core.Temporary, "%s: %w", what, err)
	case "54":
		return core.Errorf(core.TooLarge, "%s: %w", what, err)
	case "40", "55": // a conflict, a lock: the transaction was undone
		return core.Errorf(core.Temporary, "%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
