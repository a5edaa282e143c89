// Package postgresql implements a source and a destination for rows in a table of a PostgreSQL
// database.
//
// A destination stores its position in a row of the table netcraq_pipelets. The transaction that
// writes the rows also updates the position, if the position has the expected value. So each row is
// written exactly once.
//
// A source reads rows in the order of transaction IDs (xid). It reads a row only when all
// transactions with a lower ID have ended, so it does not miss a late commit with a low ID. A
// serial number would not be enough, because the transaction with the lowest number may commit
// last.
package postgresql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// StateTable is the table in which a destination stores the state of pipelets. It is in the same
// schema as the destination's table.
const StateTable = "netcraq_pipelets"

const (
	callTimeout = 5 * time.Second
	// maxGreeting and maxMessage are the maximum size of a server's message before and after the
	// session begins, in bytes. They are limited because memory for a message is allocated as soon
	// as the server announces its length.
	maxGreeting, maxMessage = 1 << 20, 64 << 20
)

// Check reports errors in a specification.
func Check(spec pipeletapi.PostgreSQL) error {
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

// identifier splits the name of a table into its parts.
func identifier(table string) pgx.Identifier {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return pgx.Identifier{schema, name}
	}
	return pgx.Identifier{"public", table}
}

// link is a connection that is opened on first use, and opened again after it was lost.
type link struct {
	spec    pipeletapi.PostgreSQL
	secrets endpoint.Secrets
	conn    *pgx.Conn
}

// get returns the connection. The result fresh reports whether this call opened the connection.
func (l *link) get(ctx context.Context) (conn *pgx.Conn, fresh bool, err error) {
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, false, nil
	}
	// with this argument, ParseConfig ignores the other settings in the process's environment
	cfg, err := pgx.ParseConfig("sslmode=disable")
	if err != nil {
		return nil, false, err
	}
	host, port, _ := net.SplitHostPort(l.spec.Address)
	n, _ := strconv.ParseUint(port, 10, 16)
	cfg.Host, cfg.Port, cfg.Database, cfg.Fallbacks = host, uint16(n), l.spec.Database, nil
	cfg.User, cfg.Password, cfg.TLSConfig = "netcraq", "", nil
	cfg.ConnectTimeout = callTimeout
	cfg.RuntimeParams = maps.Clone(settings)
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxGreeting)
		return f
	}
	if l.spec.Secret != "" {
		c, err := endpoint.ReadSecret(ctx, l.secrets, l.spec.Secret)
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
	what := "connecting to " + l.spec.Address
	if l.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		l.conn = nil
		e, ok := errors.AsType[*pgconn.PgError](err)
		if ok && e.Code == "08P01" && strings.Contains(e.Message, "startup parameter") {
			return nil, false, exactlyonce.Errorf(exactlyonce.Refused, "%s: %w: %s", what, err, unset(cfg.User, notBouncers()))
		}
		return nil, false, fault(err, what)
	}
	l.conn.PgConn().Frontend().SetMaxBodyLen(maxMessage)
	wrong, err := l.differ(ctx)
	if err == nil && len(wrong) > 0 {
		err = exactlyonce.Errorf(exactlyonce.Refused, "%s: %s", what, unset(cfg.User, wrong))
	}
	if err != nil {
		l.lose()
		return nil, false, fault(err, what)
	}
	return l.conn, true, nil
}

// settings are the parameters that each session must have.
var settings = map[string]string{
	"application_name": "netcraq-pipelets",
	// This limits the time for which the transaction of a disconnected worker can block the next
	// worker.
	"idle_in_transaction_session_timeout": "10s",
	"statement_timeout":                   "10s",
	"search_path":                         "pg_catalog",
	// The following settings make the text form of values independent of the settings of the
	// database and the role.
	"client_encoding":    "UTF8",
	"datestyle":          "ISO, MDY",
	"intervalstyle":      "postgres",
	"extra_float_digits": "3",
	"timezone":           "UTC",
	"array_nulls":        "on", // with off, a NULL in an array would become the text NULL
	"bytea_output":       "hex",
	"lc_monetary":        "C",
	"xmloption":          "content",
	// This setting affects the text form of regclass and similar types, which contains names.
	"quote_all_identifiers": "off",
}

// notBouncers returns the settings that some PgBouncer versions do not forward. They are determined
// for the oldest version in use.
func notBouncers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(settings)), func(name string) bool {
		return slices.Contains([]string{"application_name", "client_encoding", "datestyle", "timezone"}, name)
	})
}

// differ returns the settings that the session does not have, because a proxy in front of the
// server did not forward them.
func (l *link) differ(ctx context.Context) (wrong []string, err error) {
	names := slices.Sorted(maps.Keys(settings))
	rows, err := l.conn.Query(ctx, "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", names)
	if err != nil {
		return nil, err
	}
	var name, is string
	_, err = pgx.ForEachRow(rows, []any{&name, &is}, func() error {
		if _, ours := settings[name]; !ours || len(wrong) == len(settings) {
			return errors.New("the server answers with settings that it was not asked for")
		}
		if name != "application_name" && is != settings[name] {
			wrong = append(wrong, name)
		}
		return nil
	})
	slices.Sort(wrong)
	return wrong, err
}

// unset describes the remedy if a proxy does not forward settings. The settings in names have wrong
// values.
func unset(role string, names []string) string {
	var set strings.Builder
	for _, name := range names {
		fmt.Fprintf(&set, " ALTER ROLE %s SET %s = '%s';", pgx.Identifier{role}.Sanitize(), name, settings[name])
	}
	return "this is a pooler such as PgBouncer, and does not pass on what the session is to have. Give PostgreSQL's own " +
		"address. Or have the pooler give each client a session and ignore the parameters (PgBouncer: pool_mode = session, " +
		"ignore_startup_parameters = " + strings.Join(notBouncers(), ", ") + "), set them for the role, and have it connect " +
		"anew (PgBouncer: RECONNECT):" + set.String()
}

// lose closes a connection whose state is unknown.
func (l *link) lose() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.conn.Close(ctx)
		l.conn = nil
	}
}

// fault converts an error of PostgreSQL to an exactlyonce.Fault, by the class of its code
// (PostgreSQL documentation, appendix A).
func fault(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*exactlyonce.Fault](err); known {
		return err
	}
	if e, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return fmt.Errorf("%s: the server sent a message of %d bytes, and may send %d: give it shorter rows, or the "+
			"pipelet another address if it is not a PostgreSQL's (%w)", what, e.ActualBodyLen, e.MaxExpectedBodyLen, e)
	}
	if e, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: a row's column %s has a value that cannot be read, give it another one: %w",
			what, e.FieldName, err)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) < 2 {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch e.Code[:2] {
	case "22", "23", "42", "44", "28", "3D", "3F", "0A", "25":
		// The cause is, for example, data that the table refuses, a missing or different table or
		// column, or a missing permission. It may also be a missing or read-only database.
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: %w", what, err)
	case "53":
		if e.Code == "53100" {
			return exactlyonce.Errorf(exactlyonce.Refused, "%s: the database's disk is full: %w", what, err)
		}
		return exactlyonce.Errorf(exactlyonce.Temporary, "%s: %w", what, err)
	case "54":
		return exactlyonce.Errorf(exactlyonce.TooLarge, "%s: %w", what, err)
	case "40", "55": // the transaction was rolled back because of a conflict or a lock
		return exactlyonce.Errorf(exactlyonce.Temporary, "%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
