package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const (
	soon      = 20 * time.Second
	testToken = "0123456789abcdef0123456789abcdef"
)

// serve starts a server on 127.0.0.1, and returns a client of it. The server's node door echoes the
// client's bytes.
func serve(t *testing.T, set func(*Server)) *Client {
	t.Helper()
	return serveAt(t, set, func(l net.Listener) net.Listener { return l })
}

// serveAt is like serve, but other may replace the server's listener.
func serveAt(t *testing.T, set func(*Server), other func(net.Listener) net.Listener) *Client {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	cert, err := MakeCertificate("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Certificate: cert, Token: testToken, Log: slog.New(slog.DiscardHandler),
		Doors: map[string]func(context.Context) (net.Conn, error){Node: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", echo.Addr().String())
		}}}
	if set != nil {
		set(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, other(l)) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the server ends with %v", err)
			}
		case <-time.After(soon):
			t.Error("the server does not end")
		}
	})
	cfg, err := Pinned(Fingerprint(cert.Certificate[0]))
	if err != nil {
		t.Fatal(err)
	}
	return &Client{Address: l.Addr().String(), TLS: cfg, Token: testToken}
}

// works checks that the server echoes a client's bytes.
func works(t *testing.T, c *Client) {
	t.Helper()
	conn, doors, err := c.Dial(t.Context(), Node)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if len(doors) != 1 || doors[0] != Node {
		t.Errorf("doors %q", doors)
	}
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*tls.Conn).CloseWrite() // the server can still send to the client
	}()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	if got, err := io.ReadAll(conn); err != nil || string(got) != string(sent) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(sent), err)
	}
}

func TestBytesGoBothWays(t *testing.T) { works(t, serve(t, nil)) }

func TestWhoIsNotLetIn(t *testing.T) {
	other, err := MakeCertificate("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pinned, _ := Pinned(Fingerprint(other.Certificate[0]))
	for name, c := range map[string]struct {
		change func(*Client)
		door   string
		want   string
	}{
		"another token":       {func(c *Client) { c.Token = strings.Repeat("f", 32) }, Node, "wrong token"},
		"the token's start":   {func(c *Client) { c.Token = testToken[:31] }, Node, "wrong token"},
		"no token":            {func(c *Client) { c.Token = "" }, Node, "wrong token"},
		"two tokens":          {func(c *Client) { c.Token = "x " + testToken }, Node, "does not speak"},
		"another door":        {nil, Page, `no door "page"`},
		"no door":             {nil, "", `no door ""`},
		"another certificate": {func(c *Client) { c.TLS = pinned }, Node, "has the fingerprint sha256:"},
		"the machine's authorities": {func(c *Client) { c.TLS = &tls.Config{ServerName: "127.0.0.1"} }, Node,
			"certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, nil)
			good := *client
			if c.change != nil {
				c.change(client)
			}
			conn, _, err := client.Dial(t.Context(), c.door)
			if err == nil {
				conn.Close()
				t.Fatal("it is let in")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %q, want %q", err, c.want)
			}
			works(t, &good)
		})
	}
}

func TestAServerWithoutATokenLetsNobodyIn(t *testing.T) {
	c := serve(t, func(s *Server) { s.Token = "" })
	c.Token = ""
	if conn, _, err := c.Dial(t.Context(), Node); err == nil {
		conn.Close()
		t.Error("an empty token opens a server that has none")
	}
}

// closes waits until the server closes a connection, and returns the server's message.
func closes(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	b, err := io.ReadAll(c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the server keeps a connection that it should end")
	}
	return string(b)
}

func dialPlain(t *testing.T, c *Client) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", c.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestGarbage(t *testing.T) {
	c := serve(t, func(s *Server) { s.greeting = 2 * time.Second }) // enough for a handshake on a busy machine
	record := "\x16\x03\x01\xff\xff" + strings.Repeat("a", 1<<16)   // a TLS record that is longer than TLS allows
	for name, sent := range map[string]string{
		"no TLS, with the token": protocol + " node " + testToken + "\n",
		"HTTP":                   "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a long record":          record,
		"zeros":                  strings.Repeat("\x00", 1<<16),
		"nothing":                "",
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialPlain(t, c)
			_, _ = io.WriteString(conn, sent)
			if said := closes(t, conn); strings.Contains(said, "ok") {
				t.Errorf("the server answers %q", said)
			}
			works(t, c)
		})
	}
	for name, sent := range map[string]string{
		"a first line without end": strings.Repeat("a", 1<<16),
		"an empty first line":      "\n",
		"zeros":                    strings.Repeat("\x00", 100) + "\n",
		"half a first line":        protocol + " node ",
	} {
		t.Run("TLS, "+name, func(t *testing.T) {
			conn := tls.Client(dialPlain(t, c), c.TLS)
			_, _ = io.WriteString(conn, sent)
			if said := closes(t, conn); strings.HasPrefix(said, "ok") {
				t.Errorf("the server answers %q", said)
			}
			works(t, c)
		})
	}
}

// TestHalfHandshakes opens connections that send nothing, or only the start of a handshake. They
// must end after the greeting's timeout and leave nothing behind.
func TestHalfHandshakes(t *testing.T) {
	c := serve(t, func(s *Server) { s.greeting = 2 * time.Second })
	works(t, c)
	before := runtime.NumGoroutine()
	var idle []net.Conn
	for i := range perSource - 1 {
		conn := dialPlain(t, c)
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "\x16\x03\x01\x02\x00\x01")
		}
		idle = append(idle, conn)
	}
	works(t, c) // the source may open one more connection
	for _, conn := range idle {
		closes(t, conn)
	}
	poll.Until(t, soon, "the server has ended what waited", func() bool { return runtime.NumGoroutine() <= before+8 })
	works(t, c)
}

// TestAFloodKeepsOnlyItselfAway opens as many connections from one source as the server allows. No
// other source is excluded. The source can connect again when the flood stops.
func TestAFloodKeepsOnlyItselfAway(t *testing.T) {
	c := serve(t, func(s *Server) { s.greeting = soon })
	var flood []net.Conn
	for range 4 * perSource {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", c.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		flood = append(flood, conn)
	}
	for _, conn := range flood[perSource:] {
		closes(t, conn) // the source already has its maximum of connections
	}
	works(t, c)
	for _, conn := range flood {
		conn.Close()
	}
	poll.Until(t, soon, "the flooding host is let in again", func() bool {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		conn, err := (&tls.Dialer{NetDialer: from, Config: c.TLS}).DialContext(t.Context(), "tcp", c.Address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// elsewhere is a listener that gives each connection from 127.0.0.2 another IPv6 source address.
// All of these addresses are in the same network.
type elsewhere struct {
	net.Listener
	accepted int64
}

func (l *elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || !c.RemoteAddr().(*net.TCPAddr).IP.Equal(net.IPv4(127, 0, 0, 2)) {
		return c, err
	}
	l.accepted++
	return &moved{c, &net.TCPAddr{IP: net.ParseIP("fd00::1:0:0:" + strconv.FormatInt(l.accepted, 16))}}, nil
}

type moved struct {
	net.Conn
	from net.Addr
}

func (c *moved) RemoteAddr() net.Addr { return c.from }

// TestAHostOfManyAddresses checks that a host cannot exclude other hosts by using many IPv6
// addresses of its network, although the server also limits each address.
func TestAHostOfManyAddresses(t *testing.T) {
	c := serveAt(t, func(s *Server) { s.greeting = 2 * soon }, func(l net.Listener) net.Listener {
		return &elsewhere{Listener: l}
	})
	for range maxGreeting + 10 {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", c.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	works(t, c)
}

func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1":              "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":     "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[fe80::1%lo]:1":           "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := network(a); got != want {
			t.Errorf("%s is of %s, want %s", address, got, want)
		}
	}
}

// shortOfFiles is a listener whose first calls fail for lack of file descriptors.
type shortOfFiles struct {
	net.Listener
	failed bool
}

func (l *shortOfFiles) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestOutOfDescriptors checks that a server and a client continue when file descriptors are free
// again.
func TestOutOfDescriptors(t *testing.T) {
	c := serveAt(t, nil, func(l net.Listener) net.Listener { return &shortOfFiles{Listener: l} })
	works(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Forward(t.Context(), &shortOfFiles{Listener: l}, Node, slog.New(slog.DiscardHandler))
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	b := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, b); err != nil {
		select {
		case why := <-ended:
			t.Errorf("the client has ended: %v", why)
		default:
			t.Errorf("%q, %v", b, err)
		}
	}
}

// TestTooManyOfOneHost checks that a client gets a clear error if its host already has all
// permitted connections.
func TestTooManyOfOneHost(t *testing.T) {
	c := serve(t, func(s *Server) { s.greeting = soon })
	for range perSource {
		dialPlain(t, c)
	}
	conn, _, err := c.Dial(t.Context(), Node)
	if err == nil {
		conn.Close()
		t.Fatal("it is let in")
	}
	if !strings.Contains(err.Error(), "64 connections of one host") {
		t.Errorf("the error is %v", err)
	}
}

// TestRefusalsAreLoggedNowAndThen checks that a host that connects again and again does not fill
// the log.
func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	log := &lines{}
	c := serve(t, func(s *Server) { s.Log = slog.New(slog.NewTextHandler(log, nil)) })
	begin := time.Now()
	for range 100 {
		conn := dialPlain(t, c)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		closes(t, conn)
	}
	if n, most := log.n.Load(), firstRefusals+int64(time.Since(begin)/refusalEvery)+1; n < 1 || n > most {
		t.Errorf("100 refusals are %d lines, want 1 to %d", n, most)
	}
}

// lines is a writer that counts the writes to it.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(1)
	return len(b), nil
}

func TestForward(t *testing.T) {
	c := serve(t, nil)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Forward(ctx, l, Node, slog.New(slog.DiscardHandler)) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	stop()
	closes(t, conn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := ReadToken(path); !os.IsNotExist(err) {
		t.Errorf("a token that is not there: %v", err)
	}
	made, err := Token(path)
	if err != nil || len(made) < minToken {
		t.Fatalf("token %q, %v", made, err)
	}
	if again, err := Token(path); err != nil || again != made {
		t.Errorf("then %q, %v", again, err)
	}
	if read, err := ReadToken(path); err != nil || read != made {
		t.Errorf("read %q, %v", read, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(pipe); err == nil || !strings.Contains(err.Error(), "must be in a file") {
		t.Errorf("of a pipe: %v", err)
	}
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"others can read it": {made, 0o640, "chmod 600"},
		"short":              {"secret", 0o600, "one word of 32"},
		"empty":              {"", 0o600, "no token"},
		"two words":          {made + " " + made, 0o600, "one word"},
		"long":               {strings.Repeat("a", maxLine), 0o600, "one word"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Token(path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestFingerprintsAreChecked(t *testing.T) {
	for _, f := range []string{"", "sha256:", "sha256:12", strings.Repeat("0", 64), "md5:" + strings.Repeat("0", 64)} {
		if _, err := Pinned(f); err == nil {
			t.Errorf("%q is a fingerprint", f)
		}
	}
}
