package server

import (
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// connects bounds how often one process, or one address by TCP, connects. It decides before the
// server finds out who the caller is, because that takes longer than to connect: a flood would fill
// the kernel's queue of connections, and others would wait behind it.
type connects struct {
	rate  rate.Limit // on average, a second
	burst int        // at once

	mu   sync.Mutex
	from map[connector]*rate.Limiter
}

// connector is a process, or an address.
type connector struct {
	pid     int32
	address string
}

// A process may connect at the average rate connectRate, and connectBurst times at once.
const (
	connectRate  = 1000
	connectBurst = 2048
)

// afterRefusal is the pause after a connection that was refused. Without it a flood keeps this
// goroutine busy without end, and the Go scheduler then looks for news of the other connections
// every 10 ms only. With it a full queue of connections (4,096) is worked off in half a second.
const afterRefusal = 100 * time.Microsecond

var tooManyConnects, _ = rpc.JSONLines{}.Append(nil, &rpc.Response{Err: nodeapi.Errorf(nodeapi.CodeQuotaExceeded,
	"keep connections, and use one for several tasks", "more than %d connections a second were made", connectRate)})

// allow counts a connection, and reports whether it is served.
func (c *connects) allow(nc net.Conn) bool {
	who, ok := connectorOf(nc)
	if !ok {
		return true // the server finds out why nothing is known
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.from[who]
	if l == nil {
		if c.from == nil {
			c.from = map[connector]*rate.Limiter{}
		}
		l = rate.NewLimiter(c.rate, c.burst)
		c.from[who] = l
	}
	return l.Allow()
}

func connectorOf(nc net.Conn) (who connector, ok bool) {
	switch nc := nc.(type) {
	case *net.TCPConn:
		if a, isTCP := nc.RemoteAddr().(*net.TCPAddr); isTCP {
			return connector{address: a.IP.String()}, true
		}
	case syscall.Conn:
		raw, err := nc.SyscallConn()
		if err != nil {
			return who, false
		}
		var cred *unix.Ucred
		failed := raw.Control(func(fd uintptr) {
			cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		})
		if failed != nil || err != nil {
			return who, false
		}
		return connector{pid: cred.Pid}, true
	}
	return who, false
}

// sweep forgets those who have not connected lately.
func (c *connects) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for who, l := range c.from {
		if l.TokensAt(now) >= float64(c.burst) {
			delete(c.from, who)
		}
	}
}
