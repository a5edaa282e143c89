package kube

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// goneAfter is how long the node of an API server may be silent before a connection to it is given
// up: a little longer than the leader's Lease lasts. Left to client-go that takes 45 s, in which an
// agent whose API server has lost its power, or is cut off, neither hears of anything nor leads,
// though the service's address leads to others.
const goneAfter = 5 * time.Second

// DialAPIServer connects to an API server (rest.Config's Dial), and has the kernel find out when
// its node is gone. It is the kernel there that answers, so a server that is starved or stopped
// keeps its connections, which pings of HTTP/2 would end.
func DialAPIServer(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: goneAfter,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: goneAfter * 2 / 5,
			Interval: goneAfter / 5, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { // tcp(7): what is sent is answered for so long
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
					int(goneAfter.Milliseconds()))
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
	return d.DialContext(ctx, network, address)
}
