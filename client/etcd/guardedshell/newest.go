package guardedshell

import "sync/atomic"

// Newest records the newest revision of etcd's store that was seen in an answer. The revision never
// decreases. The zero value has seen no revision.
type Newest struct{ revision atomic.Int64 }

// Revision returns the newest revision that was seen, or 0 if none was seen.
func (n *Newest) Revision() int64 { return n.revision.Load() }

// Saw records that a revision was seen.
func (n *Newest) Saw(revision int64) {
	for {
		now := n.revision.Load()
		if revision <= now || n.revision.CompareAndSwap(now, revision) {
			return
		}
	}
}
