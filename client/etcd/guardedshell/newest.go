package guardedshell

import "sync/atomic"

// Newest is the newest revision of etcd's store that was seen in an answer. It never goes back. The
// zero value has seen none.
type Newest struct{ revision atomic.Int64 }

// Revision returns the newest revision seen, or 0 if there is none yet.
func (n *Newest) Revision() int64 { return n.revision.Load() }

// Saw records a revision.
func (n *Newest) Saw(revision int64) {
	for {
		now := n.revision.Load()
		if revision <= now || n.revision.CompareAndSwap(now, revision) {
			return
		}
	}
}
