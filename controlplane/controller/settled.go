package controller

import (
	"maps"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// The functions in this file compute how long a name has had its present KEY_ID. Suppose that a
// client's write went to a KEY_ID that no longer exists. The duration tells the client whether a
// copy of the write can have been executed. It cannot if the KEY_ID was gone before the client sent
// the first copy. Because the answer is a duration, no two clocks are compared.

const (
	// settledMost is longer than any client waits for a write.
	settledMost = 10 * time.Minute
	// mostReplaced bounds the size of replacedAt.
	mostReplaced = 1 << 16
)

// replaced notes that a name's former KEY_ID can no longer be used.
func (c *Controller) replaced(name string) {
	now := c.now()
	if len(c.replacedAt) >= mostReplaced {
		maps.DeleteFunc(c.replacedAt, func(_ string, at chain.Time) bool { return now-at > settledMost })
	}
	if len(c.replacedAt) >= mostReplaced { // treat all names as if they had been replaced now
		clear(c.replacedAt)
		c.replacedBy = now
	}
	c.replacedAt[name] = now
}

// settled returns for how long this controller knows that no other KEY_ID of a name could be used.
// If an earlier controller replaced a KEY_ID, that was on record before this controller started.
func (c *Controller) settled(name string) time.Duration {
	return min(settledMost, c.now()-max(c.replacedBy, c.replacedAt[name]))
}
