package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/wire"
)

// Filling a switch (docs/protocol.md, "Recovery"). Where both switches show their registers over P4Runtime, what differs is found by reading those, in a few
// requests; else by a FETCH for each slot and session at each of the two. What differs is always written by SYNC, which leaves what is newer.

// erase empties a switch by loading its program again, unless another chain would lose a member or its newcomer.
func (c *Controller) erase(ch *chainState, a chain.Erase) {
	d := c.net().byName[a.Switch]
	for _, other := range c.net().chains {
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

// copyTimeout bounds one copy, and compareTimeout one comparison: nobody can write meanwhile.
const (
	copyTimeout    = 60 * time.Second
	compareTimeout = 5 * time.Second
)

// A copy is made in rounds, because there are writes meanwhile: until so few slots and sessions differ that to look at each takes no time, or for so many rounds.
const (
	copyRounds = 8
	fewDiffer  = 64
)

// held is what a newcomer was seen to hold by the end of the copy, in the configuration of an epoch. It holds that or something newer for as long as it is the
// newcomer: SYNC and ACK only ever raise a slot's version, and a newcomer that is lost from sight is given up. So when writes have been stopped it is enough to look
// at the donor, and at the newcomer only for what the donor has beyond this: each look at 65,536 slots is ten milliseconds in which no write is done.
type held struct {
	epoch uint16
	look  look
}

// copy fills a switch, or compares it, and says how many slots and sessions it wrote, and in how many rounds.
//
// A comparison ends when the newcomer has what the donor had when it was first looked at: the chain is frozen, so nothing of this chain has been added since. Sessions'
// records are another matter: they are all chains', and where the donor is in others as well, its records go on changing with those chains' writes, for as long as there are any.
// A later request than the one recorded at the first look means that that one was answered.
func (c *Controller) copy(ctx context.Context, ch *chainState, a chain.Copy, keys []keyspace.Key, records []uint16) (written, round int, err error) {
	limit := copyTimeout
	if a.Compare {
		limit = compareTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var differed difference // in the last round
	defer func() {
		if err != nil && ctx.Err() != nil && round > 0 {
			err = fmt.Errorf("after %v and %d rounds %v still differed: %w", limit, round, &differed, err)
		}
	}()
	donor, err := c.device(a.Donor)
	to, err2 := c.device(a.To)
	if err = errors.Join(err, err2); err != nil {
		return 0, 0, err
	}
	if !a.Compare {
		if err := c.placeAll(ctx, ch, a.To, keys); err != nil {
			return 0, 0, err
		}
	} else if h := ch.held.Swap(nil); h != nil && h.epoch+1 == a.Epoch && slices.Equal(h.look.keys, keys) && slices.Equal(h.look.sessions, records) {
		at, err := c.look(ctx, donor, ch.topo.ID, a.Epoch, keys, records)
		if err != nil {
			return 0, 0, err
		}
		keys, records = beyond(at, h.look)
	}
	var frozen []record // of sessions, at the donor's first look
	for round = 1; ; round++ {
		var looks [2]look
		err := forEach(ctx, []int{0, 1}, func(ctx context.Context, i int) (err error) {
			looks[i], err = c.look(ctx, []*device{donor, to}[i], ch.topo.ID, a.Epoch, keys, records)
			return err
		})
		if err != nil {
			return written, round, err
		}
		if a.Compare {
			if frozen == nil {
				frozen = slices.Clone(looks[0].records)
			}
			for i, at := range looks[1].records {
				if at.after(frozen[i]) {
					looks[0].records[i] = at // more than is needed
				}
			}
		}
		differ, recordsDiffer := beyond(looks[0], looks[1])
		differed = difference{looks, differ, recordsDiffer}
		if err := c.unite(ctx, donor, to, looks, recordsDiffer); err != nil {
			return written, round, err
		}
		n, slotless, err := c.syncAll(ctx, ch.topo.ID, a, differ, recordsDiffer)
		if written += n; err != nil {
			return written, round, err
		}
		// A key that is being added or removed may have no entry at the donor. What a register holds of a slot that no entry leads to is of a key that is no more, and nothing copies it.
		if len(slotless) > 0 {
			keys = slices.DeleteFunc(slices.Clone(keys), func(k keyspace.Key) bool { return slotless[k.ID] })
		}
		few := len(differ)+len(recordsDiffer) <= fewDiffer
		switch {
		case a.Compare && len(differ)+len(recordsDiffer) == len(slotless):
			return written, round, nil
		case !a.Compare && (few || round == copyRounds):
			ch.held.Store(&held{a.Epoch, looks[1]})
			return written, round, nil
		}
	}
}

// placeAll gives a switch the key_index entries of a chain's keys, and no others of that chain.
func (c *Controller) placeAll(ctx context.Context, ch *chainState, sw string, keys []keyspace.Key) error {
	d, err := c.device(sw)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	d.submit(func(ctx context.Context) {
		have, err := d.have("key_index", func(e p4rt.Entry) bool { return wire.Key(e.Exact("KEY_ID").Uint64()).Chain() == ch.topo.ID })
		var drop, want []keySlot
		placed := map[wire.Key]bool{}
		for _, k := range keys {
			want = append(want, c.net().plan.entryOf(k))
			placed[k.ID] = true
		}
		for _, te := range have {
			e, decodeErr := c.prog.pipeline.Info.Decode(te)
			if decodeErr != nil {
				err = decodeErr
				break
			}
			if id := wire.Key(e.Exact("KEY_ID").Uint64()); !placed[id] {
				drop = append(drop, keySlot{id: id})
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

// look is what a switch holds: the versions of slots, and sessions' records.
type look struct {
	keys     []keyspace.Key
	versions []slotVersions // of keys
	sessions []uint16
	records  []record // of sessions
}

// record is the last request of a session and the version that it was given, 0 where it was not executed.
type record struct {
	request uint32
	version wire.Version
}

// after says whether a record is of a later request than another, in the same life of their session, or knows how the same one was executed, which the other does not.
func (r record) after(other record) bool {
	if r.request == other.request {
		return other.version == 0
	}
	return r.request > other.request && (other.request == 0 || r.request-other.request <= wire.RequestWindow)
}

// foreign says whether two records are of different lives of their session: then neither switch takes the other's for newer.
func (r record) foreign(other record) bool {
	return r.request != 0 && other.request != 0 && r.request-other.request > wire.RequestWindow && other.request-r.request > wire.RequestWindow
}

// unite makes sessions' records be of one life at two switches, where they are not. No lease is kept by that: a lease has its records at every switch of a chain before its holder hears of it. But the controller's
// own sessions begin anew in each chain when they are used there first, so a newcomer that is in another chain too may have the record of an earlier controller, or the donor may: what this controller
// goes on from is right. What nobody has leased is taken from the donor.
func (c *Controller) unite(ctx context.Context, donor, to *device, looks [2]look, sessions []uint16) error {
	return forEach(ctx, sessions, func(ctx context.Context, session uint16) error {
		i, _ := slices.BinarySearch(looks[0].sessions, session)
		ours, theirs := looks[0].records[i], looks[1].records[i]
		if !ours.foreign(theirs) {
			return nil
		}
		if own := (record{request: c.pool.last(session)}); own.foreign(ours) {
			return c.resetRecord(ctx, donor, session, own.request)
		}
		return c.resetRecord(ctx, to, session, ours.request-1) // SYNC can bring the donor's then, with its version
	})
}

// beyond is what a donor holds and another switch has not committed, or not recorded.
func beyond(donor, other look) (keys []keyspace.Key, sessions []uint16) {
	for i, k := range donor.keys {
		if v := other.versions[i]; v.latest != v.committed || v.committed != donor.versions[i].latest {
			keys = append(keys, k)
		}
	}
	for i, s := range donor.sessions {
		if donor.records[i] != other.records[i] {
			sessions = append(sessions, s)
		}
	}
	return keys, sessions
}

// difference is in which slots and sessions a donor and another switch differ.
type difference struct {
	looks    [2]look
	keys     []keyspace.Key
	sessions []uint16
}

// String tells the first slot and the first session as both have them.
func (d *difference) String() string {
	text := fmt.Sprintf("%d slots and %d sessions", len(d.keys), len(d.sessions))
	if len(d.keys) > 0 {
		i := slices.Index(d.looks[0].keys, d.keys[0])
		text += fmt.Sprintf(" (%v: %+v, %+v)", d.keys[0].ID, d.looks[0].versions[i], d.looks[1].versions[i])
	}
	if len(d.sessions) > 0 {
		i := slices.Index(d.looks[0].sessions, d.sessions[0])
		text += fmt.Sprintf(" (session %d: %+v, %+v)", d.sessions[0], d.looks[0].records[i], d.looks[1].records[i])
	}
	return text
}

// look looks at slots and sessions of a switch: at its registers where it shows them, else by a FETCH for each.
func (c *Controller) look(ctx context.Context, d *device, chainID uint8, epoch uint16, keys []keyspace.Key, sessions []uint16) (look, error) {
	if !d.noRegisters.Load() {
		l, err := c.lookAtRegisters(ctx, d, keys, sessions)
		if !p4rt.IsUnsupported(err) {
			return l, err
		}
		d.noRegisters.Store(true)
	}
	l := look{keys, make([]slotVersions, len(keys)), sessions, make([]record, len(sessions))}
	index := make([]int, len(keys)+len(sessions))
	for i := range index {
		index[i] = i
	}
	err := forEach(ctx, index, func(ctx context.Context, i int) error {
		if i -= len(keys); i >= 0 {
			r, err := c.fetchFor(ctx, d, wire.MakeKey(chainID, 0), sessions[i], epoch)
			if err == nil {
				l.records[i] = record{r.Request, r.Version}
			}
			return err
		}
		i += len(keys)
		r, err := c.fetchFor(ctx, d, keys[i].ID, 0, epoch)
		if err == nil {
			l.versions[i] = slotVersions{committed: r.Version, latest: r.Version}
			if r.Status == wire.Dirty {
				l.versions[i].committed = 0 // something older
			}
		}
		return err
	})
	return l, err
}

// lookAtRegisters is look by the switch's registers.
func (c *Controller) lookAtRegisters(ctx context.Context, d *device, keys []keyspace.Key, sessions []uint16) (look, error) {
	l := look{keys, nil, sessions, make([]record, len(sessions))}
	cells := make([]int, len(sessions))
	for i, s := range sessions {
		cells[i] = int(s)
	}
	var requests, versions []p4rt.Value
	err := forEach(ctx, []int{0, 1, 2}, func(ctx context.Context, i int) (err error) {
		switch i {
		case 0:
			l.versions, err = c.versionsAt(ctx, d, keys)
		case 1:
			requests, err = d.client.ReadRegisterCells(ctx, "session_request", cells)
		case 2:
			versions, err = d.client.ReadRegisterCells(ctx, "session_version", cells)
		}
		return err
	})
	if err != nil {
		return look{}, err
	}
	for i := range sessions {
		l.records[i] = record{uint32(low64(requests[i])), wire.Version(low64(versions[i]))}
	}
	return l, nil
}

// fetchFor fetches the newest of a key's slot, or a session's record where session is not 0, from a switch of an epoch.
func (c *Controller) fetchFor(ctx context.Context, d *device, key wire.Key, session, epoch uint16) (*wire.Packet, error) {
	flags := wire.Newest
	if session != 0 {
		flags = wire.Session
	}
	return c.fetchIn(ctx, epoch, d, key, flags, session)
}

// syncAll copies slots and sessions, and says how many, and which of the keys have no slot at the donor.
func (c *Controller) syncAll(ctx context.Context, chainID uint8, a chain.Copy, keys []keyspace.Key, sessions []uint16) (written int, slotless map[wire.Key]bool, err error) {
	donor, err := c.device(a.Donor)
	to, err2 := c.device(a.To)
	if err = errors.Join(err, err2); err != nil {
		return 0, nil, err
	}
	var n atomic.Int64
	var mu sync.Mutex
	slotless = map[wire.Key]bool{}
	one := func(ctx context.Context, key wire.Key, session uint16) error {
		r, err := c.fetchFor(ctx, donor, key, session, a.Epoch)
		if err != nil {
			return err
		}
		if session == 0 && r.Version == 0 {
			mu.Lock()
			defer mu.Unlock()
			slotless[key] = true
			return nil
		}
		p := &wire.Packet{Op: wire.Sync, Key: key, Session: r.Session, Request: r.Request, Version: r.Version, Value: r.Value, Tombstone: r.Tombstone}
		if session != 0 {
			p.Flags = wire.Session
		}
		reply, err := c.exchange(ctx, to, p, func(r *wire.Packet) bool { return r.Op == wire.SyncReply })
		if err != nil {
			return err
		}
		if reply.Status != wire.OK {
			return fmt.Errorf("%s answered the SYNC of %v with %v", to.sw.Name, key, reply.Status)
		}
		n.Add(1)
		return nil
	}
	err = forEach(ctx, keys, func(ctx context.Context, k keyspace.Key) error { return one(ctx, k.ID, 0) })
	if err == nil {
		err = forEach(ctx, sessions, func(ctx context.Context, s uint16) error { return one(ctx, wire.MakeKey(chainID, 0), s) })
	}
	return int(n.Load()), slotless, err
}
