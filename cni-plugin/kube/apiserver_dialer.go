package kube

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// goneAfter is how long the node of an API server may be silent before the kernel gives up a
// connection to it. It is a little longer than the duration of the leader's Lease. client-go's own
// timeout is 45 s. With that timeout, an agent could neither learn of changes nor lead for 45 s
// after its API server has lost power, even if the service's address leads to other API servers.
const goneAfter = 5 * time.Second

// DialAPIServer connects to an API server. It is for the field Dial of a rest.Config. It makes the
// kernel detect that the server's node is gone. The remote kernel answers the kernel's probes, so
// connections to a slow or stopped server continue. Pings of HTTP/2 would end them.
func DialAPIServer(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: goneAfter,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: goneAfter * 2 / 5,
			Interval: goneAfter / 5, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { // tcp(7) describes this timeout for the acknowledgement of sent data
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
