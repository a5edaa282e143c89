package oneconn

import (
	"errors"
	"net"
	"testing"
)

func TestListen(t *testing.T) {
	for name, end := range map[string]func(net.Listener, net.Conn) error{
		"the connection is closed": func(_ net.Listener, c net.Conn) error { return c.Close() },
		"the listener is closed":   func(l net.Listener, _ net.Conn) error { return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			l := Listen(here)
			c, err := l.Accept()
			if err != nil || l.Addr() != here.LocalAddr() {
				t.Fatal(err, l.Addr())
			}
			second := make(chan error)
			go func() { _, err := l.Accept(); second <- err }()
			if err := end(l, c); err != nil {
				t.Error(err)
			}
			if err := <-second; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: %v", err)
			}
			if _, err := there.Write([]byte("x")); err == nil {
				t.Error("the connection is not closed")
			}
			_ = c.Close() // closes the connection a second time
		})
	}
}
