package server

import (
	"context"
	"net"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// die ends the connection. The reason in why is empty if the client has disconnected or the server
// is closed. The caller holds c.mu.
func (c *conn) die(why string) {
	if c.dead {
		return
	}
	c.dead = true
	c.part.count(-int64(c.unsent))
	c.unsent, c.out, c.spare = 0, nil, nil
	for _, p := range c.passing {
		closeAll(p.files)
	}
	c.passing = nil
	c.cancel()
	c.room.Broadcast()
	c.nc.Close()
	if why != "" {
		c.s.metrics.cutOff.WithLabelValues(why).Inc()
		c.s.log.Info("a connection is cut off", "peer", c.peer.String(), "reason", why)
	}
}

// cutOff ends the connection.
func (c *conn) cutOff(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.die(why)
}

// overdue returns the reason to end the connection because a time limit has passed, or "".
func (c *conn) overdue(now time.Time) string {
	if since := c.since.Load(); since != 0 && now.Sub(time.Unix(0, since)) > c.s.limits.MessageTime {
		return "half a message"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent > 0 && now.Sub(c.wrote) > c.s.limits.StallTime {
		return "unread"
	}
	return ""
}

// end releases everything that belongs to a connection. It is called when reading has stopped.
func (c *conn) end() {
	c.cutOff("")
	c.part.count(-int64(max(cap(c.buf)-ownBuffer, 0)))
	c.buf = nil
	c.part.leave()
	if c.client != nil {
		c.client.leave()
	}
	c.giveAllBack()
	if c.account != nil {
		c.account.Close()
	}
	c.s.metrics.connections.Dec()
	c.s.left(c)
}

// farewell sends the client the reason why the connection ends. It waits briefly until the client
// has read the reason, and then ends the connection.
func (c *conn) farewell(failed *nodeapi.Error) {
	c.s.metrics.count("", failed.Code)
	text := c.encode(&rpc.Response{Err: failed})
	c.mu.Lock()
	c.push(text)
	c.mu.Unlock()
	c.flush()
	linger(c.ctx, c.nc, c.buf[:cap(c.buf)])
}

// lingerFor is how long a server continues to read from a client whose connection it ends.
// lingerPause is the first pause between two reads. Each pause is twice as long as the one before,
// so a client that sends without end costs only eight reads.
const lingerFor, lingerPause = time.Second, 10 * time.Millisecond

// linger gives a client time to read the last answers. It reads and drops input, because closing a
// socket with unread input may discard data that was already sent.
func linger(ctx context.Context, nc net.Conn, buf []byte) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = nc.SetReadDeadline(time.Now().Add(lingerFor))
	for pause := lingerPause; ; pause *= 2 {
		if _, err := nc.Read(buf); err != nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// turningAway limits the number of refused connections to which the server sends the reason at the
// same time.
var turningAway = make(chan struct{}, 64)

// turnAway sends the reason why a connection is refused, in JSON, and closes the connection.
func turnAway(nc net.Conn, failed *nodeapi.Error) {
	select {
	case turningAway <- struct{}{}:
	default:
		nc.Close()
		return
	}
	go func() {
		defer func() { <-turningAway }()
		defer nc.Close()
		text, _ := rpc.JSONLines{}.Append(nil, &rpc.Response{Err: failed})
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := nc.Write(text); err == nil {
			linger(context.Background(), nc, make([]byte, ownBuffer))
		}
	}()
}

// tellDraining tells the client to reconnect, if the client asked for such a notice.
func (c *conn) tellDraining() {
	c.mu.Lock()
	if !c.notices || c.noticed || c.dead {
		c.mu.Unlock()
		return
	}
	c.noticed = true
	c.mu.Unlock()
	c.send(&rpc.Response{Data: nodeapi.DrainNotice{Draining: true}})
}

// finish makes the connection accept no more requests, and ends its watches.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = true
	for _, k := range c.calls {
		if k.f.watches != nil {
			k.cancel()
		}
	}
}
