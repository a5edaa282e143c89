package persource

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// dial connects from an address and reports whether the server keeps the connection.
func dial(t *testing.T, from, to string) (net.Conn, bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	b := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(c, b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the server neither greets nor closes a connection")
	}
	return c, err == nil
}

func TestListen(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 3)
	defer l.Close()
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			accepted <- c
		}
	}()
	to := l.Addr().String()
	for i := range 20 {
		if _, in := dial(t, "127.0.0.1", to); in != (i < 3) {
			t.Errorf("connection %d: %v", i, in)
		}
	}
	if _, in := dial(t, "127.0.0.2", to); !in {
		t.Error("one source keeps another one away")
	}
	first := <-accepted
	first.Close()
	first.Close() // a second Close has no effect
	<-accepted
	if _, in := dial(t, "127.0.0.1", to); !in {
		t.Error("the place of a connection that is closed is not given again")
	}
	if _, in := dial(t, "127.0.0.1", to); in {
		t.Error("a connection that is closed twice gives two places")
	}
	for len(accepted) > 0 {
		(<-accepted).Close()
	}
	poll.Until(t, 10*time.Second, "a place", func() bool { _, in := dial(t, "127.0.0.1", to); return in })
}

func TestSourceOf(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.2.3":           "10.1.2.3",
		"::ffff:10.1.2.3":    "10.1.2.3",
		"fd00:1:2:3:4:5:6:7": "fd00:1:2:3:4:5:6:7",
		"fe80::1%lo":         "fe80::1%lo",
	} {
		ip, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(address, "1"))
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := sourceOf(ip); !ok || p.String() != want {
			t.Errorf("%s: %v %v, not %s", address, p, ok, want)
		}
	}
	if _, ok := sourceOf(&net.UnixAddr{Name: "x"}); ok {
		t.Error("a Unix socket has a source")
	}
}
