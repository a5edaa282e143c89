package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Every placed key has been written, if only with a tombstone. But if all members of a chain were
// restarted (chain.lost), its slots have version 0. A client that knows keys by name cannot tell
// such a key from one that has just moved away, so the client repeats its request again and again.
// A tombstone tells the client, and everyone who watches the key, that the value is gone. The
// tombstone is newer than everything that was lost, because it has a later epoch. It is written by
// CAS on version 0, so it replaces no value.

// mayBeLost returns the indexes of the keys that must be buried if all members have lost them.
func (c *Chain) mayBeLost(keys []Key) map[int]bool {
	lost := map[int]bool{}
	for i, k := range keys {
		if c.Buries != nil && k.State == keyspace.Placed && c.Buries(k) {
			lost[i] = true
		}
	}
	return lost
}

// bury writes tombstones to keys without a version. A key that is written or removed meanwhile is
// left as it is.
func (c *Chain) bury(ctx context.Context, members []*Switch, keys []Key, lost map[int]bool) error {
	if len(lost) == 0 {
		return nil
	}
	all := slices.Sorted(maps.Keys(lost))
	return c.ForEach(ctx, len(all), c.Pool.Size, func(ctx context.Context, i int) error {
		return c.buryOne(ctx, members, keys[all[i]])
	})
}

func (c *Chain) buryOne(ctx context.Context, members []*Switch, k Key) error {
	s, err := c.Pool.get(ctx, c, members)
	if err != nil {
		return err
	}
	defer c.Pool.put(s)
	ctx, cancel := c.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	p := &wire.Packet{Op: wire.CAS, Key: k.ID, Session: s.id, Request: s.next.Add(1), Tombstone: true}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		r, err := members[0].Exchange(ctx, p, func(r *wire.Packet) bool {
			return (r.Op == wire.CASReply || r.Op == wire.WriteReply) && r.Session == p.Session &&
				r.Request == p.Request
		})
		if err != nil {
			return err
		}
		switch r.Status {
		case wire.OK, wire.Superseded, wire.CASFailed, wire.NotFound:
			return nil
		case wire.Retry, wire.NotServing, wire.Full:
		default:
			return fmt.Errorf("%s answered the CAS of %v with %v", members[0].Name, k.ID, r.Status)
		}
		if err := c.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("burying %s: %w", k.Name, err)
		}
	}
}
