// Package persource limits how many connections one source can have open at a listener. So a host
// that only opens connections cannot use up a server's memory or descriptors, and cannot exclude
// other hosts.
package persource

import (
	"net"
	"net/netip"
	"sync"
)

// Listen returns a listener that accepts at most max concurrent connections from one source, and
// closes further ones at once. A source is an IP address. A pod has only its own addresses, because
// the filter at its interface drops packets from other addresses. A host on the nodes' link can use
// more IPv6 addresses. But if a 64-bit network were one source, all nodes would share one limit.
// Other connections, such as those of Unix sockets, are not limited.
func Listen(l net.Listener, max int) net.Listener {
	return &listener{Listener: l, max: max, open: map[netip.Addr]int{}}
}

type listener struct {
	net.Listener
	max int

	mu   sync.Mutex
	open map[netip.Addr]int
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, ok := sourceOf(c.RemoteAddr())
		if !ok {
			return c, nil
		}
		if l.enter(source) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(source) })}, nil
		}
		_ = c.Close()
	}
}

func (l *listener) enter(source netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source] >= l.max {
		return false
	}
	l.open[source]++
	return true
}

func (l *listener) leave(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source]--; l.open[source] == 0 {
		delete(l.open, source)
	}
}

func sourceOf(a net.Addr) (netip.Addr, bool) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return t.AddrPort().Addr().Unmap(), true
}

// conn is a connection that counts as open until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
