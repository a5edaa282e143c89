package kube

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// goneAfter is the time without an answer after which the kernel gives up a connection to an API
// server's node. It is a little longer than the leader's Lease. With client-go's own timeout (45
// s), an agent whose API server has lost power, or is cut off, would neither learn of changes nor
// lead for that time, even if the service's address leads to other API servers.
const goneAfter = 5 * time.Second

// DialAPIServer connects to an API server (rest.Config's Dial), and makes the kernel detect that
// its node is gone. The remote kernel answers these probes, so a starved or stopped server keeps
// its connections; pings of HTTP/2 would end them.
func DialAPIServer(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: goneAfter,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: goneAfter * 2 / 5,
			Interval: goneAfter / 5, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { // tcp(7): the timeout for the acknowledgement of sent data
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
