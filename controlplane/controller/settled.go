package controller

import (
	"maps"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// How long a name has had no other KEY_ID. A client whose write went to a KEY_ID that no longer
// existed learns from it whether a copy of the write can have been executed: not if the KEY_ID was
// gone before the first copy was sent. It is a duration, so that no two clocks are compared.

const (
	// settledMost is more than anybody waits for a write.
	settledMost = 10 * time.Minute
	// mostReplaced bounds the memory for it.
	mostReplaced = 1 << 16
)

// replaced notes that the KEY_ID that a name has had can no longer be used.
func (c *Controller) replaced(name string) {
	now := c.now()
	if len(c.replacedAt) >= mostReplaced {
		maps.DeleteFunc(c.replacedAt, func(_ string, at chain.Time) bool { return now-at > settledMost })
	}
	if len(c.replacedAt) >= mostReplaced { // all names are as if they had been replaced now
		clear(c.replacedAt)
		c.replacedBy = now
	}
	c.replacedAt[name] = now
}

// settled is how long no other KEY_ID of a name could be used, as far as this controller knows.
// What an earlier controller has replaced was on record before this one began.
func (c *Controller) settled(name string) time.Duration {
	return min(settledMost, c.now()-max(c.replacedBy, c.replacedAt[name]))
}
