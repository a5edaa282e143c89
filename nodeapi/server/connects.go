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

// connects limits how often one process, or one TCP address, may connect. It decides before the
// server identifies the caller, because identifying a caller takes longer than connecting.
// Otherwise a flood of connections would fill the kernel's queue, and other callers would have to
// wait.
type connects struct {
	rate  rate.Limit // average number of connections per second
	burst int        // maximum number of connections at once

	mu   sync.Mutex
	from map[connector]*rate.Limiter
}

// connector is the state of one process or TCP address that has connected.
type connector struct {
	pid     int32
	address string
}

// connectRate is the average number of connections per second that a process may make. connectBurst
// is the number of connections that it may make at once.
const (
	connectRate  = 1000
	connectBurst = 2048
)

// afterRefusal is the pause after a refused connection. Without it, a flood would keep the
// accepting goroutine busy, and the Go scheduler would poll the other connections only every 10 ms.
// With it, a full queue of 4,096 connections is emptied in half a second.
const afterRefusal = 100 * time.Microsecond

var tooManyConnects, _ = rpc.JSONLines{}.Append(nil, &rpc.Response{Err: nodeapi.Errorf(nodeapi.CodeQuotaExceeded,
	"keep connections, and use one for several tasks", "more than %d connections a second were made", connectRate)})

// allow counts a connection, and reports whether the server accepts it.
func (c *connects) allow(nc net.Conn) bool {
	who, ok := connectorOf(nc)
	if !ok {
		return true // accept the connection; the server then determines why nothing is known about the caller
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

// sweep deletes the state of processes and addresses that have not connected recently.
func (c *connects) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for who, l := range c.from {
		if l.TokensAt(now) >= float64(c.burst) {
			delete(c.from, who)
		}
	}
}
