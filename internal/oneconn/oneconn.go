// Package oneconn turns a single connection into a listener, for servers that need listeners.
package oneconn

import (
	"net"
	"sync"
)

// Listen makes a listener that returns one connection. When the connection is closed, by its user
// or by the listener's Close, Accept returns net.ErrClosed.
func Listen(c net.Conn) net.Listener {
	l := &listener{first: make(chan net.Conn, 1), ended: make(chan struct{})}
	l.conn = &conn{Conn: c, end: sync.OnceFunc(func() { close(l.ended) })}
	l.first <- l.conn
	return l
}

type listener struct {
	conn  *conn
	first chan net.Conn
	ended chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.first:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error { return l.conn.Close() }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.conn.LocalAddr() }

type conn struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}
