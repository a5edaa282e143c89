// Package tunnel connects programs on another host to a `netcraq dev` server, over TLS and with a
// token. The server is `netcraq dev --listen`, and the client is `netcraq connect`.
//
// Each connection of a program is a separate TLS connection. The client's first line names a door,
// which is a service of the server. The line also has the token, which proves that the client may
// use the door. The server's first line is its answer. After that, both sides forward the program's
// bytes.
//
//	client: netcraq-dev/1 node TOKEN
//	server: ok admin gateway node page         (the available doors; or "no REASON")
//
// A client with the token has all rights of the user who runs the server.
package tunnel

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/internal/persource"
	"github.com/netcraq/netcraq/internal/shares"
)

// The doors of a server. Each door is one of its services.
const (
	Node    = "node"    // the node API
	Admin   = "admin"   // the controller's admin API
	Gateway = "gateway" // etcd's API
	Page    = "page"    // the controller's page
)

const (
	protocol = "netcraq-dev/1"
	// greeting is the maximum time of a connection's start: the TLS handshake and the first lines.
	greeting = 5 * time.Second
	maxLine  = 512 // maximum length of a first line, in bytes

	// perSource is the maximum number of open connections of one IP address, including those
	// without a token. So a host that floods the server blocks only itself.
	perSource = 64
	// maxGreeting is the maximum number of connections in their greeting phase at the same time,
	// from all sources. One network may hold at most as many as remain free.
	maxGreeting = 512
	// maxOpen is the maximum number of open connections from all sources. One network may hold at
	// most as many as remain free.
	maxOpen = 1024

	// The server logs the first refusals, and later at most one in each refusalEvery.
	firstRefusals = 10
	refusalEvery  = time.Second
)

// Server accepts clients. Its fields are set before Serve.
type Server struct {
	Certificate tls.Certificate
	Token       string
	Doors       map[string]func(context.Context) (net.Conn, error) // functions that connect to a door's service
	Log         *slog.Logger

	greeting time.Duration  // 0 means the constant greeting
	open     *shares.Budget // open connections by network
	greets   *shares.Budget
	refusals rate.Sometimes // limits how many refusals are logged
}

// Serve accepts connections until ctx ends. It closes the listener, and returns when all
// connections are closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.greeting == 0 {
		s.greeting = greeting
	}
	s.open, s.greets = shares.New(maxOpen), shares.New(maxGreeting)
	s.refusals = rate.Sometimes{First: firstRefusals, Interval: refusalEvery}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	var running sync.WaitGroup
	defer running.Wait()
	l = persource.Listen(l, perSource)
	for {
		c, err := accept(ctx, l)
		if c == nil {
			return err
		}
		from := network(c.RemoteAddr())
		if !s.open.Take(from, 1) {
			c.Close()
			continue
		}
		if !s.greets.Take(from, 1) {
			s.open.Give(from, 1)
			c.Close()
			continue
		}
		running.Go(func() {
			defer s.open.Give(from, 1)
			s.serve(ctx, c, from)
		})
	}
}

// accept returns the next connection of a listener. It returns nil when ctx has ended or the
// listener has failed. It waits while no file descriptors are free.
func accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		switch passing := net.Error(nil); {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.As(err, &passing) && passing.Timeout() || tooMany(err):
			time.Sleep(10 * time.Millisecond)
		default:
			return nil, err
		}
	}
}

// network returns the network whose limit a connection counts against. For IPv4 it is the address.
// For IPv6 it is the first 64 bits, because a host can use all addresses that share them.
func network(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	ip, bits := t.AddrPort().Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked().String()
}

// serve handles one connection, from its handshake to its end.
func (s *Server) serve(ctx context.Context, c net.Conn, from string) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{s.Certificate}, MinVersion: tls.VersionTLS13})
	to, err := s.greet(ctx, secure)
	s.greets.Give(from, 1)
	if err != nil {
		s.refusals.Do(func() { s.Log.Warn("a connection was refused", "from", c.RemoteAddr(), "reason", err) })
		return
	}
	defer context.AfterFunc(ctx, func() { to.Close() })()
	join(secure, to)
}

// greet checks whether a connection is permitted, and opens the door that it asks for.
func (s *Server) greet(ctx context.Context, c *tls.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.greeting)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	line, err := readLine(c)
	if err != nil {
		return nil, err
	}
	to, err := s.admit(ctx, line)
	answer := "ok " + strings.Join(slices.Sorted(maps.Keys(s.Doors)), " ")
	if err != nil {
		answer = "no " + err.Error()
	}
	if _, failed := io.WriteString(c, answer+"\n"); failed != nil && err == nil {
		to.Close()
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return to, c.SetDeadline(time.Time{})
}

// admit opens the door that a client's first line names, if the line has the right token.
func (s *Server) admit(ctx context.Context, line string) (net.Conn, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 || fields[0] != protocol {
		return nil, fmt.Errorf("the client does not speak %s: use netcraq connect of the server's version", protocol)
	}
	// Hashes have the same length, so the comparison takes the same time for every token.
	want, got := sha256.Sum256([]byte(s.Token)), sha256.Sum256([]byte(fields[2]))
	if s.Token == "" || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return nil, errors.New("wrong token: copy the server's token file again")
	}
	open := s.Doors[fields[1]]
	if open == nil {
		return nil, fmt.Errorf("the server has no door %q", fields[1])
	}
	return open(ctx)
}

// readLine reads one line. It reads no byte after the line.
func readLine(c net.Conn) (string, error) {
	line := make([]byte, 0, 128)
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return "", fmt.Errorf("the first line is missing: %w", err)
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		if line = append(line, b[0]); len(line) > maxLine {
			return "", fmt.Errorf("the first line has more than %d bytes", maxLine)
		}
	}
}

// join copies bytes between two connections, in both directions. It ends when both have finished or
// one has failed.
func join(a, b net.Conn) {
	var copies sync.WaitGroup
	one := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			a.Close()
			b.Close()
			return
		}
		if w, ok := to.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
			to.Close()
		}
	}
	copies.Go(func() { one(a, b) })
	copies.Go(func() { one(b, a) })
	copies.Wait()
	a.Close()
	b.Close()
}

// Client connects to the doors of a server.
type Client struct {
	Address string // address of the server, HOST:PORT
	TLS     *tls.Config
	Token   string
}

// Dial opens a connection to a door. The returned doors are all doors that the server offers.
func (c *Client) Dial(ctx context.Context, door string) (_ net.Conn, doors []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Client(plain, c.TLS)
	defer func() {
		if err != nil {
			plain.Close()
		}
	}()
	if err := conn.HandshakeContext(ctx); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			err = fmt.Errorf("%w. The server lets in %d connections of one host: close those that are not used", err, perSource)
		}
		return nil, nil, fmt.Errorf("TLS with %s: %w", c.Address, err)
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, nil, err
	}
	if _, err := fmt.Fprintf(conn, "%s %s %s\n", protocol, door, c.Token); err != nil {
		return nil, nil, err
	}
	line, err := readLine(conn)
	if err != nil {
		return nil, nil, fmt.Errorf("%s does not answer: %w", c.Address, err)
	}
	if reason, ok := strings.CutPrefix(line, "no "); ok {
		return nil, nil, fmt.Errorf("%s: %s", c.Address, reason)
	}
	list, ok := strings.CutPrefix(line, "ok ")
	if !ok {
		return nil, nil, fmt.Errorf("%s is not a netcraq dev --listen", c.Address)
	}
	return conn, strings.Fields(list), conn.SetDeadline(time.Time{})
}

// Forward connects each connection of a listener to a door, until ctx ends. It returns when all
// connections are closed.
func (c *Client) Forward(ctx context.Context, l net.Listener, door string, log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		here, err := accept(ctx, l)
		if here == nil {
			return err
		}
		running.Go(func() {
			defer here.Close()
			there, _, err := c.Dial(ctx, door)
			if err != nil {
				log.Error("cannot reach the server", "door", door, "error", err)
				return
			}
			defer context.AfterFunc(ctx, func() { here.Close(); there.Close() })()
			join(here, there)
		})
	}
}
