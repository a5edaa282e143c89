// Package pgtest starts PostgreSQL servers for tests.
package pgtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// Server is a PostgreSQL server for one test, on loopback. Its user is netcraq, without a password.
type Server struct {
	Address string
	Dir     string
	t       *testing.T
	bin     string
	attr    *syscall.SysProcAttr
	cmd     *exec.Cmd
}

// New starts a server. It skips the test if PostgreSQL is not installed.
func New(t *testing.T) *Server {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed (Debian's package postgresql)")
	}
	// the folder's path is short, because the path of a socket must be short
	dir, err := os.MkdirTemp("", "netcraq-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{Dir: dir, t: t, bin: filepath.Dir(found[len(found)-1])}
	// The server does not run as root, because PostgreSQL refuses that. The kernel kills it when
	// this process dies.
	s.attr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		who, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		s.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(filepath.Join(s.bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "netcraq", "-A", "trust",
		"-E", "UTF8", "--locale", "C", "--no-sync")
	c.SysProcAttr, c.Dir = s.attr, dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.Address = testport.Free(t)
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Start starts the server, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Address)
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), "-D", filepath.Join(s.Dir, "data"), "-p", port, "-h", "127.0.0.1",
		"-k", s.Dir, "-c", "shared_buffers=16MB", "-c", "max_connections=20", "-c", "log_min_messages=log")
	s.cmd.SysProcAttr, s.cmd.Dir, s.cmd.Stderr = s.attr, s.Dir, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	poll.Nil(s.t, time.Minute, "the server answers", func() error {
		c, err := s.connect()
		if err != nil {
			return err
		}
		return c.Close(context.Background())
	})
}

// Kill ends the server at once, in the middle of its work. This is like a power failure, except
// that data in the kernel's cache is not lost.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	// SIGQUIT requests an immediate shutdown; SIGKILL would leave the server's children alive
	s.cmd.Process.Signal(syscall.SIGQUIT)
	s.cmd.Wait()
	s.cmd = nil
}

func (s *Server) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return pgx.Connect(ctx, "postgres://netcraq@"+s.Address+"/postgres?sslmode=disable")
}

// Connect returns a connection to the server. The connection is closed at the end of the test.
func (s *Server) Connect() *pgx.Conn {
	s.t.Helper()
	c, err := s.connect()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// Do runs SQL statements.
func (s *Server) Do(statements ...string) {
	s.t.Helper()
	c, err := s.connect()
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, q := range statements {
		if _, err := c.Exec(context.Background(), q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}
}
