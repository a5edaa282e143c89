package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// leaseCursors encrypts the cursors of listLeases. A cursor contains the name after which the next
// page begins. That may be the name of another pod's lease, and a caller that knows the name could
// end the lease. The encryption key lives as long as the process. If the process ends during a
// list, the list must begin again.
var leaseCursors = newLeaseCursors()

func newLeaseCursors() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // Read never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // a key of 32 bytes is always valid
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES is always valid for GCM
	}
	return aead
}

func sealLeaseCursor(namespace, after string) string {
	return base64.RawURLEncoding.EncodeToString(leaseCursors.Seal(nil, nil, []byte(after), []byte(namespace)))
}

func openLeaseCursor(namespace, cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		b, err = leaseCursors.Open(nil, nil, b, []byte(namespace))
	}
	if err != nil {
		return "", nodeapi.Errorf(nodeapi.CodeInvalidArgument,
			"pass the cursor of the page before, with the same namespace, or begin again without a cursor",
			"this is not a cursor of a list of leases in the namespace %s, or the server was restarted since", namespace)
	}
	return string(b), nil
}

// listLeases returns a page of the namespace's leases and of the things that they hold. It reads
// all names, including names that programs do not see. A pod sees only the leases that this server
// granted to its own processes.
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
	if r.After, err = openLeaseCursor(ns, d.Cursor); err != nil {
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
			answer.Cursor = sealLeaseCursor(ns, p.Names[len(p.Names)-1].Key.Name)
		}
		return answer, err
	})
}

// leasesOf returns the leases among names, and the things among names that leases hold.
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

// maySee reports whether the caller may see the lease of a holder. A pod may see only its own
// leases.
func (k *call) maySee(holder any) bool {
	if k.c.peer.Kind != authority.Pod {
		return true
	}
	peer, ok := holder.(authority.Caller)
	return ok && peer.Principal() == k.c.peer.Principal()
}

// nameOf returns the name of a holder, for people.
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
