package server

import (
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// chargeMessage counts a message as the given number of requests. It subtracts the requests that
// were already counted for the bytes of the message.
func (c *conn) chargeMessage(requests int) *nodeapi.Error {
	if requests <= c.charged {
		return nil
	}
	return c.charge(requests - c.charged)
}

// charge counts requests. If the caller has sent too many, it returns an error, and the connection
// reads nothing for a moment.
func (c *conn) charge(requests int) *nodeapi.Error {
	err := c.account.Request(requests)
	if err == nil {
		return nil
	}
	// With this pause, the caller's connections get about a thousand refusals per second in total.
	c.pause = max(10*time.Millisecond, time.Duration(c.account.Connections())*time.Millisecond)
	return rpc.ToAnswer(err, false)
}

// rest pauses after a message was refused. It reports whether the connection continues.
func (c *conn) rest() bool {
	t := time.NewTimer(c.pause)
	defer t.Stop()
	c.pause = 0
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// admit identifies the caller, and decides whether the caller may use the API.
func (c *conn) admit() *nodeapi.Error {
	peer := c.s.config.Identify.Identify(c.nc)
	namespace, err := c.s.config.Authority.Namespace(c.ctx, peer)
	c.mu.Lock()
	c.peer, c.namespace = peer, namespace
	if err == nil { // in this case no resources are held
		c.part.leave()
		c.part = c.s.budget.join(c.s.config.Authority.Subject(peer))
		c.account, err = c.s.config.Quotas.Connect(c.part.subject)
	}
	c.mu.Unlock()
	if err != nil {
		return rpc.ToAnswer(err, false)
	}
	return nil
}

// enter adds a request to the requests under way. It returns an error if a limit is reached.
func (c *conn) enter(k *call) *nodeapi.Error {
	if !c.part.take(k.cost) {
		return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "send it again later",
			"too many bytes of requests are under way at this server")
	}
	if err := c.account.Watch(k.watches); err != nil {
		c.part.count(-k.cost)
		return rpc.ToAnswer(err, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *nodeapi.Error
	switch {
	case c.calls[k.req.ID] != nil:
		refused = rpc.Invalid("id %d: a request of this id is under way on this connection", k.req.ID)
	case c.watched+k.watches > c.s.limits.watches:
		refused = nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "cancel watches that are not used, or watch a prefix",
			"a connection watches at most %d keys and prefixes; it watches %d, and would %d more",
			c.s.limits.watches, c.watched, k.watches)
	case c.last:
		refused = rpc.ErrDraining()
	default:
		c.calls[k.req.ID] = k
		c.watched += k.watches
		c.s.metrics.watches.Add(float64(k.watches))
		return nil
	}
	c.part.count(-k.cost)
	c.account.Unwatch(k.watches)
	return refused
}
