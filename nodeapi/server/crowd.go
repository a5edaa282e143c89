package server

import (
	"sync/atomic"

	"github.com/netcraq/netcraq/api/unannounced"
)

// crowd says whether a connection has several requests at a time. If it has one at a time, nobody
// else needs to read the connection while a request waits for a short time, which spares a change
// of goroutines. To find out, the goroutine that has done a request now and then looks whether the
// next one was there before the answer was sent.
type crowd struct {
	left  atomic.Int32 // how many requests are still taken for some of several
	looks atomic.Int32
}

const (
	crowdFor   = 256 // requests, after several were seen at a time
	lookEvery  = 8   // requests
	firstLooks = 1   // a new connection is looked at first
)

// crowded reports whether more requests may come before the one that was just read is answered. The
// connection's reader calls it.
func (c *conn) crowded() bool {
	if c.start < len(c.buf) {
		c.crowd.left.Store(crowdFor)
	}
	if c.raw == nil {
		return true
	}
	if c.crowd.left.Load() > 0 {
		c.crowd.left.Add(-1)
		return true
	}
	return false
}

// lookForOthers looks, now and then, whether the next request has arrived.
func (c *conn) lookForOthers() {
	if c.crowd.looks.Add(1)%lookEvery != firstLooks {
		return
	}
	there := false
	_ = c.raw.Control(func(fd uintptr) { there = unannounced.Arrived(fd) })
	if there {
		c.crowd.left.Store(crowdFor)
	}
}
