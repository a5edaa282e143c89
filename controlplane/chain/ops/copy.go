package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// This file fills a switch (docs/protocol.md, "Recovery"). If both switches let the controller read
// their registers, the controller compares the registers, in a few requests. Otherwise it sends a
// FETCH for each slot and session to both switches. In both cases it writes the differences by
// SYNC, which keeps newer content.

// copyTimeout bounds one copy, and compareTimeout bounds one comparison. If the compared switch
// hangs, clients cannot write until the comparison ends.
const (
	copyTimeout    = 60 * time.Second
	compareTimeout = 5 * time.Second
)

// A copy runs in rounds, because clients write meanwhile. The copy ends when so few slots and
// sessions differ that checking each of them takes no time, or after a maximum number of rounds.
const (
	copyRounds = 8
	fewDiffer  = 64
)

// held is the joiner's content at the end of the copy, in the configuration of an epoch. The joiner
// keeps that content or something newer for as long as it is the joiner. SYNC and ACK only raise a
// slot's version, and a joiner that loses its connection is given up. So once writes have stopped,
// the controller reads the donor, and reads the joiner only where the donor has more than held.
// This matters because writes are stopped meanwhile, and each read of 65,536 slots takes ten
// milliseconds.
type held struct {
	epoch uint16
	look  look
}

// Copy fills a switch, or compares it. It returns how many slots and sessions it wrote, and in how
// many rounds.
//
// A comparison ends when the joiner has the content that the donor had at the first read. The chain
// is frozen, so nothing of this chain has been added since. Sessions' records are different,
// because they belong to all chains. If the donor is also in other chains, its records keep
// changing with those chains' writes. That does no harm: if a session's record names a later
// request than the first read found, the earlier request was answered.
func (c *Chain) Copy(ctx context.Context, a chain.Copy, keys []Key, sessions []uint16) (written, round int, err error) {
	limit := copyTimeout
	if a.Compare || a.Passed {
		limit = compareTimeout
	}
	ctx, cancel := c.WithTimeout(ctx, limit)
	defer cancel()
	var differed *difference // what differed in the last round
	defer func() {
		if err != nil && ctx.Err() != nil && differed != nil {
			err = fmt.Errorf("after %v and %d rounds %v still differed: %w", limit, round, differed, err)
		}
	}()
	donor, err := c.Switch(a.Donor)
	to, err2 := c.Switch(a.To)
	if err = errors.Join(err, err2); err != nil {
		return 0, 0, err
	}
	for _, k := range slices.Clone(keys) {
		if k.State == keyspace.Moving { // it is unknown which of the key's KEY_IDs the donor has
			k.ID = k.Alias
			keys = append(keys[:len(keys):len(keys)], k)
		}
	}
	if a.Passed {
		written, round, differed, err = c.catchUp(ctx, a.Epoch, donor, to, keys, sessions)
		return written, round, err
	}
	if !a.Compare {
		if err := c.placeKeys(ctx, donor, to, keys); err != nil {
			return 0, 0, err
		}
	} else if h := c.held.Swap(nil); h != nil && h.epoch+1 == a.Epoch && slices.Equal(h.look.keys, keys) &&
		slices.Equal(h.look.sessions, sessions) {
		at, err := c.look(ctx, donor, a.Epoch, keys, sessions)
		if err != nil {
			return 0, 0, err
		}
		d := beyond(at, h.look)
		keys, sessions = d.keys, d.sessions
	}
	var frozen []record // the sessions' records at the donor's first read
	for round = 1; ; round++ {
		var looks [2]look
		if err := c.ForEach(ctx, 2, 2, func(ctx context.Context, i int) (err error) {
			looks[i], err = c.look(ctx, []*Switch{donor, to}[i], a.Epoch, keys, sessions)
			return err
		}); err != nil {
			return written, round, err
		}
		if a.Compare {
			if frozen == nil {
				frozen = slices.Clone(looks[0].records)
			}
			for i, at := range looks[1].records {
				if at.after(frozen[i]) {
					looks[0].records[i] = at // the joiner's later record includes everything that is needed
				}
			}
		}
		differed = beyond(looks[0], looks[1])
		if err := c.unite(ctx, donor, to, differed); err != nil {
			return written, round, err
		}
		n, slotless, err := c.sync(ctx, a.Epoch, donor, to, differed)
		if written += n; err != nil {
			return written, round, err
		}
		// A key that is being added or removed may have no entry at the donor. A slot without an
		// entry belongs to a key that no longer exists, and nothing copies it.
		if len(slotless) > 0 {
			keys = slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return slotless[k.ID] })
		}
		few := differed.count() <= fewDiffer
		switch {
		case a.Compare && differed.count() == len(slotless):
			return written, round, nil
		case !a.Compare && (few || round == copyRounds):
			c.held.Store(&held{a.Epoch, looks[1]})
			return written, round, nil
		}
	}
}

// catchUp fills a switch that writes pass on their way to the donor, which is the tail. The switch
// gets every later write before the donor does. So the switch lacks no committed write once it has,
// for each slot and session, the content of the donor's first read or something newer. catchUp ends
// even if clients never stop writing.
func (c *Chain) catchUp(ctx context.Context, epoch uint16, donor, to *Switch, keys []Key,
	sessions []uint16) (written, round int, differed *difference, err error) {
	had, err := c.look(ctx, donor, epoch, keys, sessions)
	if err != nil {
		return 0, 0, nil, err
	}
	if h := c.held.Swap(nil); h != nil && h.epoch+1 == epoch && slices.Equal(h.look.keys, keys) &&
		slices.Equal(h.look.sessions, sessions) {
		had = missed(had, h.look).donor() // the joiner keeps the content that it had
	}
	for round = 1; ; round++ {
		has, err := c.look(ctx, to, epoch, had.keys, had.sessions)
		if err != nil {
			return written, round, differed, err
		}
		differed = missed(had, has)
		if differed.count() == 0 {
			break
		}
		if err := c.unite(ctx, donor, to, differed); err != nil {
			return written, round, differed, err
		}
		n, slotless, err := c.sync(ctx, epoch, donor, to, differed)
		if written += n; err != nil {
			return written, round, differed, err
		}
		had = differed.donor()
		for i, r := range differed.records {
			if r[0].foreign(r[1]) { // the switch has recorded no write of the session so far
				r, err := donor.fetchIn(ctx, epoch, wire.MakeKey(c.ID, 0), wire.Session, had.sessions[i])
				if err != nil {
					return written, round, differed, err
				}
				had.records[i] = record{r.Request, r.Version}
			}
		}
		for i := len(had.keys) - 1; i >= 0; i-- { // as in Copy, skip keys that have no slot at the donor
			if slotless[had.keys[i].ID] {
				had.keys, had.versions = slices.Delete(had.keys, i, i+1), slices.Delete(had.versions, i, i+1)
			}
		}
	}
	// Registers do not carry an epoch. A switch that was restarted meanwhile has no epoch, so the
	// epochs are checked.
	for _, s := range []*Switch{donor, to} {
		if _, err := s.fetchIn(ctx, epoch, wire.MakeKey(c.ID, 0), wire.Session, 1); err != nil {
			return written, round, differed, err
		}
	}
	return written, round, differed, nil
}

// missed returns the donor's content that another switch lacks, or of which the switch has accepted
// only an older version.
func missed(donor, other look) *difference {
	d := &difference{}
	for i, k := range donor.keys {
		if v := other.versions[i]; v.latest < donor.versions[i].latest {
			d.keys = append(d.keys, k)
			d.versions = append(d.versions, [2]versions{donor.versions[i], v})
		}
	}
	for i, s := range donor.sessions {
		if r := other.records[i]; r != donor.records[i] && !r.after(donor.records[i]) {
			d.sessions = append(d.sessions, s)
			d.records = append(d.records, [2]record{donor.records[i], r})
		}
	}
	return d
}

// donor returns the donor's side of a difference.
func (d *difference) donor() look {
	l := look{keys: d.keys, sessions: d.sessions}
	for _, v := range d.versions {
		l.versions = append(l.versions, v[0])
	}
	for _, r := range d.records {
		l.records = append(l.records, r[0])
	}
	return l
}

// placeKeys gives a switch the key_index entries of a chain's keys, and removes the switch's other
// entries of that chain. It also gives the donor entries for keys that are being removed. The donor
// may have deleted its entries already. Without the tombstone, the switch would mistake a late copy
// of an earlier write for the newest.
func (c *Chain) placeKeys(ctx context.Context, donor, to *Switch, keys []Key) error {
	var drop, want, removed []Entry
	placed := map[wire.Key]bool{}
	for _, k := range keys {
		e := c.Entry(k)
		want = append(want, e)
		placed[k.ID] = true
		if k.State == keyspace.Removing {
			removed = append(removed, e)
		}
	}
	if len(removed) > 0 {
		if err := donor.target.WriteEntries(ctx, true, removed); err != nil {
			return fmt.Errorf("%s cannot take entries of %d keys that are being removed: %w", donor.Name, len(removed), err)
		}
	}
	have, err := to.target.Keys(ctx, c.ID)
	for _, id := range have {
		if !placed[id] {
			drop = append(drop, Entry{ID: id})
		}
	}
	if err == nil && len(drop) > 0 {
		err = to.target.WriteEntries(ctx, false, drop)
	}
	if err == nil {
		err = to.target.WriteEntries(ctx, true, want)
	}
	if err != nil {
		return fmt.Errorf("%s cannot take the chain's %d keys: %w", to.Name, len(keys), err)
	}
	return nil
}

// look is the content of a switch: the versions of slots, and the sessions' records.
type look struct {
	keys     []Key
	versions []versions // versions of the keys' slots
	sessions []uint16
	records  []record // records of the sessions
}

// look reads slots and sessions of a switch. It reads them from the switch's registers if the
// switch shows these, and otherwise by a FETCH for each.
func (c *Chain) look(ctx context.Context, at *Switch, epoch uint16, keys []Key, sessions []uint16) (look, error) {
	l := look{keys: keys, sessions: sessions}
	together := 2
	if at.noRegisters.Load() {
		together = 1 // each of the two reads may use half of the permitted exchanges
	}
	err := c.ForEach(ctx, 2, together, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			l.versions, err = c.slots(ctx, at, keys, func(ctx context.Context, k Key) (*wire.Packet, error) {
				return at.fetchIn(ctx, epoch, k.ID, wire.Newest, 0)
			})
			return err
		}
		l.records, err = c.records(ctx, at, epoch, sessions)
		return err
	})
	return l, err
}

// beyond returns the donor's content that another switch has not committed or recorded.
func beyond(donor, other look) *difference {
	d := &difference{}
	for i, k := range donor.keys {
		if v := other.versions[i]; v.dirty() || v.committed != donor.versions[i].latest {
			d.keys = append(d.keys, k)
			d.versions = append(d.versions, [2]versions{donor.versions[i], v})
		}
	}
	for i, s := range donor.sessions {
		if donor.records[i] != other.records[i] {
			d.sessions = append(d.sessions, s)
			d.records = append(d.records, [2]record{donor.records[i], other.records[i]})
		}
	}
	return d
}

// difference lists the slots and sessions in which a donor and another switch differ, with the
// content of both switches.
type difference struct {
	keys     []Key
	versions [][2]versions
	sessions []uint16
	records  [][2]record
}

func (d *difference) count() int { return len(d.keys) + len(d.sessions) }

// String describes the first slot and the first session in which the two switches differ.
func (d *difference) String() string {
	text := fmt.Sprintf("%d slots and %d sessions", len(d.keys), len(d.sessions))
	if len(d.keys) > 0 {
		text += fmt.Sprintf(" (%v: %+v, %+v)", d.keys[0].ID, d.versions[0][0], d.versions[0][1])
	}
	if len(d.sessions) > 0 {
		text += fmt.Sprintf(" (session %d: %+v, %+v)", d.sessions[0], d.records[0][0], d.records[0][1])
	}
	return text
}

// sync copies slots and sessions. It returns the number of copied slots and sessions, and the keys
// that have no slot at the donor.
func (c *Chain) sync(ctx context.Context, epoch uint16, donor, to *Switch, d *difference) (written int,
	slotless map[wire.Key]bool, err error) {
	var n atomic.Int64
	missing := make([]bool, len(d.keys))
	err = c.ForEach(ctx, d.count(), window, func(ctx context.Context, i int) error {
		key, flags, session := wire.MakeKey(c.ID, 0), wire.Session, uint16(0)
		if i < len(d.keys) {
			key, flags = d.keys[i].ID, wire.Newest
		} else {
			session = d.sessions[i-len(d.keys)]
		}
		r, err := donor.fetchIn(ctx, epoch, key, flags, session)
		if err != nil {
			return err
		}
		if session == 0 && r.Version == 0 {
			missing[i] = true
			return nil
		}
		p := &wire.Packet{Op: wire.Sync, Flags: flags & wire.Session, Key: key, Session: r.Session, Request: r.Request,
			Version: r.Version, Value: r.Value, Tombstone: r.Tombstone}
		reply, err := to.Exchange(ctx, p, func(r *wire.Packet) bool { return r.Op == wire.SyncReply })
		if err != nil {
			return err
		}
		if reply.Status != wire.OK {
			return fmt.Errorf("%s answered the SYNC of %v with %v", to.Name, key, reply.Status)
		}
		n.Add(1)
		return nil
	})
	slotless = map[wire.Key]bool{}
	for i, k := range d.keys {
		if missing[i] {
			slotless[k.ID] = true
		}
	}
	return int(n.Load()), slotless, err
}
