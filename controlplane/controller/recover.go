package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/directory"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/wire"
)

// Filling a switch (docs/protocol.md, "Recovery"). Where both switches show their registers over P4Runtime, what differs is found by reading those, in a few
// requests; else by a FETCH for each slot and session at each of the two. What differs is always written by SYNC, which leaves what is newer.

// erase empties a switch by loading its program again, unless another chain would lose a member or its newcomer.
func (c *Controller) erase(ch *chainState, a chain.Erase) {
	d := c.byName[a.Switch]
	for _, other := range c.chains {
		if other != ch && slices.Contains(other.m.Status(c.now()).Config.Learners(), a.Switch) {
			err := fmt.Errorf("it has values of before, which only loading its program anew can empty, and chain %s needs it as it is: "+
				"take it out of that chain first, or restart it", other.topo.Name)
			c.post(func() { c.touch(ch).EraseFailed(c.now(), a.Seq, err) })
			return
		}
	}
	// While it is empty it routes nothing either.
	c.avoided[d.sw.Name] = true
	c.reroute("switch.avoided", d, "it is being emptied: routes go around it where they can")
	c.afterOthers(d, func() {
		d.submit(func(ctx context.Context) {
			s := d.client.State()
			err := error(errNotConnected)
			if s.Phase == p4rt.Primary {
				err = d.client.Reload(ctx, c.prog.pipeline)
			}
			if err != nil {
				c.post(func() { c.touch(ch).EraseFailed(c.now(), a.Seq, err) })
				return
			}
			d.freshAt, d.loadedAt = s.Stream, 0
			d.setUp(ctx, s.Stream)
		})
	})
}

// copyTimeout bounds one copy or comparison.
const copyTimeout = 60 * time.Second

// copy fills a switch, or compares it, and says how many slots and sessions it wrote.
func (c *Controller) copy(ctx context.Context, ch *chainState, a chain.Copy, keys []directory.Key) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	if !a.Compare {
		if err := c.placeAll(ctx, ch, a.To, keys); err != nil {
			return 0, err
		}
	}
	written := 0
	for {
		what, err := c.differences(ctx, ch, a, keys)
		if err != nil {
			return written, err
		}
		n, err := c.syncAll(ctx, a, what)
		if written += n; err != nil || !a.Compare || len(what) == 0 {
			return written, err
		}
	}
}

// placeAll gives a switch the key_index entries of a chain's keys, and no others of that chain.
func (c *Controller) placeAll(ctx context.Context, ch *chainState, sw string, keys []directory.Key) error {
	d := c.byName[sw]
	done := make(chan error, 1)
	d.submit(func(ctx context.Context) {
		have, err := d.have("key_index", func(e p4rt.Entry) bool { return wire.Key(e.Exact("KEY_ID").Uint64()).Chain() == ch.topo.ID })
		var drop, want []keySlot
		placed := map[wire.Key]bool{}
		for _, k := range keys {
			want = append(want, keySlot{k.ID, k.Slot})
			placed[k.ID] = true
		}
		for _, te := range have {
			e, decodeErr := c.prog.pipeline.Info.Decode(te)
			if decodeErr != nil {
				err = decodeErr
				break
			}
			if id := wire.Key(e.Exact("KEY_ID").Uint64()); !placed[id] {
				drop = append(drop, keySlot{id, int(e.Param("slot").Uint64())})
			}
		}
		if err == nil {
			err = d.writeKeys(ctx, false, drop)
		}
		if err == nil {
			err = d.writeKeys(ctx, true, want)
		}
		done <- err
	})
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s cannot take the chain's %d keys: %w", sw, len(keys), err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slotOrSession names one thing to copy: a key's slot, or with session not 0 that session's record.
type slotOrSession struct {
	key     wire.Key
	session uint16
}

// differences is what the newcomer has not, or not as the donor has it.
func (c *Controller) differences(ctx context.Context, ch *chainState, a chain.Copy, keys []directory.Key) ([]slotOrSession, error) {
	donor, to := c.byName[a.Donor], c.byName[a.To]
	if !donor.noRegisters.Load() && !to.noRegisters.Load() {
		out, err := c.differingRegisters(ctx, ch, donor, to, keys)
		if !p4rt.IsUnsupported(err) {
			return out, err
		}
		donor.noRegisters.Store(true)
	}
	var all []slotOrSession
	for _, k := range keys {
		all = append(all, slotOrSession{key: k.ID})
	}
	for i := 1; i < c.prog.sessions; i++ {
		all = append(all, slotOrSession{wire.MakeKey(ch.topo.ID, 0), uint16(i)})
	}
	differs := make([]bool, len(all))
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	err := forEach(ctx, index, func(ctx context.Context, i int) error {
		r, err := c.fetchFor(ctx, donor, all[i], a.Epoch)
		if err != nil {
			return err
		}
		q, err := c.fetchFor(ctx, to, all[i], a.Epoch)
		if err != nil {
			return err
		}
		if all[i].session != 0 {
			differs[i] = r.Request != q.Request || r.Version != q.Version
		} else {
			differs[i] = q.Status == wire.Dirty || r.Version != q.Version
		}
		return nil
	})
	var out []slotOrSession
	for i, x := range all {
		if differs[i] {
			out = append(out, x)
		}
	}
	return out, err
}

// fetchFor fetches the newest of a slot, or a session's record, from a switch of an epoch.
func (c *Controller) fetchFor(ctx context.Context, d *device, x slotOrSession, epoch uint16) (*wire.Packet, error) {
	flags := wire.Newest
	if x.session != 0 {
		flags = wire.Session
	}
	r, err := c.fetch(ctx, d, x.key, flags, x.session)
	if err == nil && r.Epoch != epoch {
		err = fmt.Errorf("%s has epoch %d, not %d", d.sw.Name, r.Epoch, epoch)
	}
	return r, err
}

// differingRegisters is differences by the registers of both.
func (c *Controller) differingRegisters(ctx context.Context, ch *chainState, donor, to *device, keys []directory.Key) ([]slotOrSession, error) {
	sessions := make([]int, 0, c.prog.sessions)
	for i := 1; i < c.prog.sessions; i++ {
		sessions = append(sessions, i)
	}
	type state struct {
		versions map[wire.Key]slotVersions
		request  []p4rt.Value
		version  []p4rt.Value
	}
	states := make([]state, 2)
	err := forEach(ctx, []int{0, 1}, func(ctx context.Context, i int) (err error) {
		d := []*device{donor, to}[i]
		if states[i].versions, err = c.versionsAt(ctx, d, keys); err != nil {
			return err
		}
		if states[i].request, err = d.client.ReadRegisterCells(ctx, "session_request", sessions); err != nil {
			return err
		}
		states[i].version, err = d.client.ReadRegisterCells(ctx, "session_version", sessions)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []slotOrSession
	for _, k := range keys {
		if v := states[1].versions[k.ID]; v.latest != v.committed || v.committed != states[0].versions[k.ID].latest {
			out = append(out, slotOrSession{key: k.ID})
		}
	}
	for n, i := range sessions {
		if low64(states[0].request[n]) != low64(states[1].request[n]) || low64(states[0].version[n]) != low64(states[1].version[n]) {
			out = append(out, slotOrSession{wire.MakeKey(ch.topo.ID, 0), uint16(i)})
		}
	}
	return out, nil
}

// syncAll copies slots and sessions, and says how many.
func (c *Controller) syncAll(ctx context.Context, a chain.Copy, what []slotOrSession) (int, error) {
	donor, to := c.byName[a.Donor], c.byName[a.To]
	var n atomic.Int64
	err := forEach(ctx, what, func(ctx context.Context, x slotOrSession) error {
		r, err := c.fetchFor(ctx, donor, x, a.Epoch)
		if err != nil {
			return err
		}
		p := &wire.Packet{Op: wire.Sync, Key: x.key, Session: r.Session, Request: r.Request, Version: r.Version, Value: r.Value, Tombstone: r.Tombstone}
		if x.session != 0 {
			p.Flags = wire.Session
		}
		reply, err := c.exchange(ctx, to, p, func(r *wire.Packet) bool { return r.Op == wire.SyncReply })
		if err != nil {
			return err
		}
		if reply.Status != wire.OK {
			return fmt.Errorf("%s answered the SYNC of %v with %v", to.sw.Name, x.key, reply.Status)
		}
		n.Add(1)
		return nil
	})
	return int(n.Load()), err
}
