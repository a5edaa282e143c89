package server

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// ofLeases takes the place of a list's prefix in cursors of listLeases. No prefix has a control
// character, so a cursor of one function is not one of the other.
const ofLeases = "\x00leases"

// listLeases makes a page of the namespace's leases and of what they hold. It reads all names, also
// those that programs do not see. A pod sees only the leases that its own processes were granted
// here.
func listLeases(ctx context.Context, k *call, d *nodeapi.ListLeasesData) (any, error) {
	if err := checkLimit(d.Limit); err != nil {
		return nil, err
	}
	ns, err := k.place(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	r := store.Range{Namespace: ns, Most: d.Limit, Bytes: keysOnlyBytes}
	set(&r.Most, nodeapi.DefaultList)
	if r.After, err = openCursor(ns, ofLeases, d.Cursor); err != nil {
		return nil, err
	}
	return k.listing(func() (any, error) {
		p, err := k.c.s.config.Store.Page(ctx, r)
		if err != nil {
			return nil, err
		}
		if err := k.counts(p.Names); err != nil {
			return nil, err
		}
		answer, err := k.leasesOf(ctx, p.Names)
		if err == nil && p.More {
			last := p.Names[len(p.Names)-1].Key.Name
			answer.Cursor = sealCursor(store.Range{Namespace: ns, Prefix: ofLeases, After: last})
		}
		return answer, err
	})
}

// leasesOf finds the leases among names, and the things that leases hold.
func (k *call) leasesOf(ctx context.Context, names []store.Listed) (*nodeapi.ListLeasesAnswer, error) {
	items := make([]store.Item, len(names))
	failed := make([]error, len(names))
	k.each(len(names), func(n int) {
		if items[n] = names[n].Item; !names[n].Read {
			items[n], failed[n] = k.c.s.config.Store.Get(ctx, names[n].Key, false)
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := &nodeapi.ListLeasesAnswer{Leases: []nodeapi.LeaseState{}, Held: []nodeapi.Held{}}
	c := k.c.s.coordination
	for n, item := range items {
		if failed[n] != nil {
			answer.Unread++
			continue
		}
		if state, holder, ok := c.LeaseState(item); ok && k.maySee(holder) {
			state.Holder = k.nameOf(holder)
			answer.Leases = append(answer.Leases, state)
		}
		if held, ok := coordination.HeldOf(item); ok && k.maySee(c.Holder(item.Key.Namespace, held.Lease)) {
			answer.Held = append(answer.Held, held)
		}
	}
	return answer, nil
}

// maySee says whether the caller may see the lease of a holder. A pod may see its own.
func (k *call) maySee(holder any) bool {
	if k.c.peer.Kind != authority.Pod {
		return true
	}
	peer, ok := holder.(authority.Caller)
	return ok && peer.Principal() == k.c.peer.Principal()
}

// nameOf names a holder for people.
func (k *call) nameOf(holder any) string {
	peer, ok := holder.(authority.Caller)
	if !ok {
		return ""
	}
	if n, ok := k.c.s.config.Authority.(authority.Namer); ok {
		return n.Name(peer)
	}
	return peer.String()
}
