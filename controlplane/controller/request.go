package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Clients request keys by name. The controller places such a key in any chain with room.

// errQuota says that the number of keys has reached its limit.
var errQuota = errors.New("quota exceeded")

// RequestKey adds a key in the chain that has the most room, unless a key of that name exists. It
// is idempotent.
func (c *Controller) RequestKey(ctx context.Context, r admin.KeyRequest) (*admin.RequestedKey, error) {
	if q := r.Quota; q != nil && (q.Prefix == "" || !strings.HasPrefix(r.Name, q.Prefix)) {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "the quota is of names that start with %q, and the key's is %q",
			q.Prefix, r.Name)
	}
	full := map[string]bool{} // chains that had no room when they were tried
	var share error           // why a chain with room refused this requester
	for {
		var there keyspace.Key
		var known bool
		var to string
		var failed error
		if err := c.call(ctx, func() {
			if there, known, failed = c.find(r.Name); failed == nil && !known {
				to, failed = c.roomiest(r.Chains, full)
			}
		}); err != nil || failed != nil {
			if share != nil && errors.Is(failed, keyspace.ErrFull) {
				failed = share
			}
			return nil, apiError(errors.Join(err, failed))
		}
		if known {
			return c.requested(ctx, there, false)
		}
		added, err := c.addKeys(ctx, to, []newKey{{name: r.Name, value: r.Value, maker: r.Node, may: func() error {
			if q := r.Quota; q != nil {
				// Another caller may have just made this key. Then no additional key is requested.
				if _, made := c.dir.ByName(r.Name); made {
					return keyspace.ErrExists
				}
				if n := c.dir.CountPrefix(q.Prefix); n >= q.Keys {
					return fmt.Errorf("%w: there are %d keys whose names start with %s, and there may be %d", errQuota, n, q.Prefix, q.Keys)
				}
			}
			return nil
		}}})
		if err != nil {
			return nil, apiError(err)
		}
		switch a := added[0]; {
		case a.err == nil:
			return c.requested(ctx, a.key, true)
		case errors.Is(a.err, keyspace.ErrExists): // another caller was faster
		case errors.Is(a.err, keyspace.ErrFull):
			full[to] = true
		case errors.Is(a.err, keyspace.ErrShare):
			full[to], share = true, a.err
		default:
			return nil, apiError(a.err)
		}
	}
}

func (c *Controller) requested(ctx context.Context, k keyspace.Key, created bool) (*admin.RequestedKey, error) {
	out := &admin.RequestedKey{Created: created}
	return out, apiError(c.call(ctx, func() { out.Key = c.describeOne(k) }))
}

// find returns a key by its name. It returns only when the answer is on record, so that no later
// controller undoes it.
func (c *Controller) find(name string) (k keyspace.Key, known bool, err error) {
	k, known = c.dir.ByName(name)
	if c.news[name] || known && k.State != keyspace.Placed {
		return k, known, fmt.Errorf("%w: the key %q is being added, removed or moved: ask again", chain.ErrUnavailable, name)
	}
	return k, known, c.mayTell()
}

// roomiest returns the chain with the smallest share of its slots in use, among the named chains
// (or all, if names is empty). It prefers chains that are ready.
func (c *Controller) roomiest(names []string, full map[string]bool) (string, error) {
	var all []*chainState
	for _, n := range names {
		ch, err := c.findChain(n)
		if err != nil {
			return "", err
		}
		all = append(all, ch)
	}
	if len(names) == 0 {
		all = c.net().chains
	}
	type candidate struct {
		name  string
		ready bool
		taken float64
	}
	var fit []candidate
	var said []string
	for _, ch := range all {
		n, slots := c.dir.Count(ch.topo.ID), ch.space.Count
		said = append(said, fmt.Sprintf("%s has %d of %d", ch.topo.Name, n, slots))
		if n < slots && !full[ch.topo.Name] {
			fit = append(fit, candidate{ch.topo.Name, ch.m.Status(c.now()).Ready, float64(n) / float64(slots)})
		}
	}
	if len(fit) == 0 {
		return "", fmt.Errorf("%w: no chain that may be used has a slot free (%s): remove keys, or give a chain more slots",
			keyspace.ErrFull, strings.Join(said, ", "))
	}
	return slices.MinFunc(fit, func(a, b candidate) int {
		if a.ready != b.ready {
			if a.ready {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.taken, b.taken), strings.Compare(a.name, b.name))
	}).name, nil
}
