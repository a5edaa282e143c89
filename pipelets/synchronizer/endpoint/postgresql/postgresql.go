// Package postgresql is a source and a destination of rows in a table of a PostgreSQL database.
//
// A destination's position is a row of the table netcraq_pipelets. The transaction that writes the
// rows also updates the position, on the condition that it has the expected value. So each row is
// written exactly once.
//
// A source is read in the order of transaction IDs (xid), and only as far as all transactions with
// a lower ID have ended, so that a late commit with a low ID is not missed. A serial number would
// not do, because the transaction that takes the lowest number may commit last.
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

// StateTable is a destination's table for the state of pipelets, in the schema of the destination's
// table.
const StateTable = "netcraq_pipelets"

const (
	callTimeout = 5 * time.Second
	// maxGreeting and maxMessage are the maximum size of a server's message before and after the
	// session begins. Memory for a message is allocated as soon as its length is announced.
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

// identifier splits a table's name into its parts.
func identifier(table string) pgx.Identifier {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return pgx.Identifier{schema, name}
	}
	return pgx.Identifier{"public", table}
}

// link is a connection that is opened on first use, and again after a loss.
type link struct {
	spec    pipeletapi.PostgreSQL
	secrets endpoint.Secrets
	conn    *pgx.Conn
}

// get returns the connection. fresh reports whether it was opened by this call.
func (l *link) get(ctx context.Context) (conn *pgx.Conn, fresh bool, err error) {
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, false, nil
	}
	cfg, err := pgx.ParseConfig("sslmode=disable") // ignores the process's environment except for this
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

// settings are the parameters of each session.
var settings = map[string]string{
	"application_name": "netcraq-pipelets",
	// Limits the time for which the transaction of a cut-off worker can block the next worker.
	"idle_in_transaction_session_timeout": "10s",
	"statement_timeout":                   "10s",
	"search_path":                         "pg_catalog",
	// Makes the text form of values independent of the settings of the database and the role.
	"client_encoding":    "UTF8",
	"datestyle":          "ISO, MDY",
	"intervalstyle":      "postgres",
	"extra_float_digits": "3",
	"timezone":           "UTC",
	"array_nulls":        "on", // otherwise an array's NULL becomes the text NULL
	"bytea_output":       "hex",
	"lc_monetary":        "C",
	"xmloption":          "content",
	// The text form of regclass and similar types contains names.
	"quote_all_identifiers": "off",
}

// notBouncers are the settings that the oldest PgBouncer version in use does not forward.
func notBouncers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(settings)), func(name string) bool {
		return slices.Contains([]string{"application_name", "client_encoding", "datestyle", "timezone"}, name)
	})
}

// differ returns the settings that the session lacks, because a proxy before the server has dropped
// them.
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

// unset describes the remedy if a proxy does not forward settings and the ones with these names
// have wrong values.
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

// lose closes a connection in an unknown state.
func (l *link) lose() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.conn.Close(ctx)
		l.conn = nil
	}
}

// fault classifies an error of PostgreSQL by its class (documentation, appendix A).
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
		// data that the table refuses, a missing or different table or column, no permission, a
		// missing database or one that is read-only
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: %w", what, err)
	case "53":
		if e.Code == "53100" {
			return exactlyonce.Errorf(exactlyonce.Refused, "%s: the database's disk is full: %w", what, err)
		}
		return exactlyonce.Errorf(exactlyonce.Temporary, "%s: %w", what, err)
	case "54":
		return exactlyonce.Errorf(exactlyonce.TooLarge, "%s: %w", what, err)
	case "40", "55": // a conflict or a lock: the transaction was rolled back
		return exactlyonce.Errorf(exactlyonce.Temporary, "%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
