package placementcontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// These constants limit moves.
const (
	relist     = 30 * time.Second // interval at which entries are read again, in case another process wrote them
	moving     = 10 * time.Second // time limit of one step
	removeSome = 8                // number of keys that are removed at a time
)

// reconcile makes the entries in etcd and the keys in the switches agree. They differ if a move was
// not finished, or if someone else has changed one of them:
//
//   - A key in the switches has no entry with its KEY_ID, so no gateway reads it. reconcile removes
//     the key.
//   - The KEY_ID of an entry is not in the switches, because a removal finished except for the
//     entry. reconcile deletes the entry.
func (p *Controller) reconcile(ctx context.Context, chains []admin.Chain) error {
	if p.entries == nil || time.Since(p.listed) > relist {
		if err := p.list(ctx); err != nil {
			return err
		}
	}
	ours, err := p.o.Network.Directory(ctx, namePrefix, false)
	if err != nil {
		return err
	}
	there := map[string]admin.Key{}
	for _, k := range ours {
		key, err := placement.ParsePrintable(strings.TrimPrefix(k.Name, namePrefix))
		if err != nil { // someone else has chosen a name of this form for a key
			continue
		}
		e, ok := p.entries[key]
		if ok && e.ID == k.KeyID && e.Chain == k.Chain {
			there[key] = k
			continue
		}
		if !ready(chains, k.Chain) {
			continue
		}
		if err := p.step("remove %s, which has no entry", key); err != nil {
			return err
		}
		if err := p.fromSwitches(ctx, k.Chain, k.Name); err != nil {
			p.o.Log.Warn("a key that no gateway knows of could not be removed", "key", k.Name, "error", err)
			continue
		}
		p.o.Network.Announce("placement.tidied", k.Chain, fmt.Sprintf("%s was in the switches and no gateway knew of it: removed", placement.Printable(key)))
	}
	var names map[uint32]string // names of all keys in the switches
	for key, e := range p.entries {
		if _, ok := there[key]; ok {
			continue
		}
		if names == nil {
			if names, err = p.names(ctx); err != nil {
				return err
			}
		}
		if name, ok := names[e.ID]; ok {
			// The controller has lost its directory, and found the key in the switches. Gateways
			// still read the key there.
			if !ready(chains, e.Chain) || p.fromSwitches(ctx, e.Chain, name) != nil {
				continue
			}
		}
		if err := p.step("delete the entry of %s, which is in no switch", key); err != nil {
			return err
		}
		if err := p.unlist(ctx, key, e); err != nil {
			return err
		}
		p.o.Network.Announce("placement.tidied", e.Chain, fmt.Sprintf("%s was placed, but is in the switches no more: its entry is deleted", placement.Printable(key)))
	}
	return nil
}

// names returns the names of the keys in the switches, by KEY_ID.
func (p *Controller) names(ctx context.Context) (map[uint32]string, error) {
	all, err := p.o.Network.Directory(ctx, "", false)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]string, len(all))
	for _, k := range all {
		out[k.KeyID] = k.Name
	}
	return out, nil
}

func ready(chains []admin.Chain, name string) bool {
	for _, ch := range chains {
		if ch.Name == name {
			return ch.Ready && !ch.Frozen
		}
	}
	return false
}

// list reads the entries from etcd.
func (p *Controller) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	entries, broken, _, err := p.placed.List(ctx)
	if err != nil {
		return err
	}
	for key, err := range broken {
		p.o.Log.Warn("an entry of a placed key in etcd cannot be read, and no gateway reads that key from the network", "key", placement.Printable(key), "error", err)
	}
	p.entries, p.listed = entries, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.where
	p.where = map[string]position{}
	for key, e := range entries {
		// An earlier controller may have placed the key, which was before this time.
		at := position{e.Chain, e.ID, e.Version, p.listed}
		if o, ok := old[key]; ok && o.id == at.id {
			at.since = o.since
		}
		p.where[key] = at
	}
	for key := range p.faults {
		if _, ok := entries[key]; !ok {
			delete(p.faults, key)
		}
	}
	return nil
}

// fromSwitches removes a key from the switches. It succeeds if the key is not there.
func (p *Controller) fromSwitches(ctx context.Context, chain, name string) error {
	ctx, cancel := context.WithTimeout(ctx, moving)
	defer cancel()
	err := p.o.Network.RemoveKey(ctx, chain, name)
	if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		return nil
	}
	return err
}

// unlist deletes the entry of a key that is no longer in the switches.
func (p *Controller) unlist(ctx context.Context, key string, e placement.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, moving)
	defer cancel()
	err := p.placed.Delete(ctx, key, e.Mod, p.o.Conditions...)
	if err != nil {
		p.entries = nil // read the entries again, because their state is unknown
		return err
	}
	delete(p.entries, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.where, key)
	delete(p.faults, key)
	delete(p.unreachable, key)
	return nil
}

// unfinished returns the moves that are not done yet.
func (p *Controller) unfinished(moves []policy.Move) []policy.Move {
	var out []policy.Move
	for _, m := range moves {
		if _, placed := p.entries[string(m.Key)]; placed == (m.Op == policy.Remove) {
			out = append(out, m)
		}
	}
	return out
}

// carryOut makes moves: first removals, then additions. If a single move fails, carryOut notes
// that, and a later round decides on the key again. An error means that no move can be made.
func (p *Controller) carryOut(ctx context.Context, moves []policy.Move) error {
	var mu sync.Mutex
	var stop error
	var removals []policy.Move
	additions := map[string][]policy.Move{}
	for _, m := range moves {
		if m.Op == policy.Remove {
			removals = append(removals, m)
		} else {
			additions[m.Chain] = append(additions[m.Chain], m)
		}
	}
	gone := map[string]error{}
	if p.o.step != nil { // in tests, moves run one after the other
		for _, m := range removals {
			if err := p.step("remove %s", m.Key); err != nil {
				return err
			}
			gone[string(m.Key)] = p.fromSwitches(ctx, m.Chain, DirectoryName(string(m.Key)))
		}
	} else {
		each(removals, removeSome, func(m policy.Move) {
			err := p.fromSwitches(ctx, m.Chain, DirectoryName(string(m.Key)))
			mu.Lock()
			defer mu.Unlock()
			gone[string(m.Key)] = err
		})
	}
	for _, m := range removals {
		key := string(m.Key)
		err := gone[key]
		if e, ok := p.entries[key]; err == nil && ok {
			if err := p.step("delete the entry of %s", key); err != nil {
				return err
			}
			if err = p.unlist(ctx, key, e); err != nil {
				stop = errors.Join(stop, err)
			}
		}
		p.moved(m, err)
	}
	if stop != nil {
		return stop
	}
	for chain, some := range additions {
		if err := p.add(ctx, chain, some); err != nil {
			return err
		}
	}
	return nil
}

// add places keys in a chain: first in the switches, then in etcd.
func (p *Controller) add(ctx context.Context, chain string, moves []policy.Move) error {
	if err := p.step("add %s", keysOf(moves)); err != nil {
		return err
	}
	specs := make([]admin.KeySpec, len(moves))
	for i, m := range moves {
		specs[i] = admin.KeySpec{Name: DirectoryName(string(m.Key)), Value: []byte(slotcodec.Unsealed)}
	}
	adding, cancel := context.WithTimeout(ctx, moving)
	keys, err := p.o.Network.AddKeys(adding, chain, specs)
	cancel()
	if err != nil {
		for _, m := range moves {
			p.moved(m, err)
		}
		return nil
	}
	versions := p.made(ctx, keys)
	for i, k := range keys {
		m := moves[i]
		if k.Error != nil {
			p.moved(m, k.Error)
			continue
		}
		version, err := versions[i].version, versions[i].err
		if err != nil { // the next round will remove the key from the switches
			p.moved(m, err)
			continue
		}
		if err := p.step("write the entry of %s", m.Key); err != nil {
			return err
		}
		writing, cancel := context.WithTimeout(ctx, moving)
		e, err := p.placed.Put(writing, string(m.Key), placement.Entry{ID: k.KeyID, Chain: k.Chain,
			Version: version}, p.o.Conditions...)
		cancel()
		if err != nil {
			p.moved(m, err)
			// The content of etcd is not known, and the switches may have keys without entries.
			p.entries = nil
			return err
		}
		p.entries[string(m.Key)] = e
		p.mu.Lock()
		p.where[string(m.Key)] = position{k.Chain, k.KeyID, e.Version, time.Now()}
		delete(p.faults, string(m.Key))
		p.mu.Unlock()
		p.moved(m, nil)
	}
	return nil
}

// made holds the version that a slot had when its key was placed.
type made struct {
	version uint64
	err     error
}

// made returns the versions that slots had when their keys were placed. Gateways treat a slot
// without a seal as clear only in that version.
func (p *Controller) made(ctx context.Context, keys []admin.Key) []made {
	out := make([]made, len(keys))
	var some []int
	for i, k := range keys {
		if k.Error == nil {
			some = append(some, i)
		}
	}
	each(some, checkAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, looking)
		defer cancel()
		k, err := p.o.Network.Lookup(ctx, keys[i].Name, true)
		if err != nil {
			out[i].err = fmt.Errorf("looking at its slot: %w", err)
			return
		}
		// any member that has committed a version will do, because all members have the same
		// version
		for _, s := range k.State {
			if s.Status == "OK" && s.Version == s.Newest && k.KeyID == keys[i].KeyID {
				if string(s.Value) != slotcodec.Unsealed || s.Version == 0 {
					out[i].err = fmt.Errorf("somebody has written its slot, as soon as it was made: %x, version %d", s.Value, s.Version)
					return
				}
				out[i].version = s.Version
			}
		}
		if out[i].version == 0 {
			out[i].err = errors.New("no member of its chain could be asked for the version of its slot")
		}
	})
	return out
}

func keysOf(moves []policy.Move) string {
	var out []string
	for _, m := range moves {
		out = append(out, placement.Printable(string(m.Key)))
	}
	return strings.Join(out, " ")
}

// recentMoves is the number of moves that the status shows.
const recentMoves = 100

// moved notes the result of a move.
func (p *Controller) moved(m policy.Move, err error) {
	key := string(m.Key)
	text := placement.Printable(key)
	shown := admin.PlacementMove{Time: time.Now().UTC(), Op: string(m.Op), Key: text, Chain: m.Chain,
		Code: string(m.Code), Reason: m.Reason}
	result := "done"
	if err != nil {
		result = "failed"
		p.retry[key] = time.Now().Add(p.o.tryAgain)
		shown.Error = err.Error()
		p.o.Network.Announce("placement.failed", m.Chain, fmt.Sprintf("%s was not %sd (%s), and that is tried again: %v", text, m.Op, m.Reason, err))
	} else {
		delete(p.retry, key)
		kind := map[policy.Op]string{policy.Place: "placement.placed", policy.Remove: "placement.removed"}[m.Op]
		p.o.Network.Announce(kind, m.Chain, fmt.Sprintf("%s: %s", text, m.Reason))
	}
	p.metrics.moves.WithLabelValues(string(m.Op), string(m.Code), result).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.Recent = append([]admin.PlacementMove{shown}, p.shown.Recent[:min(len(p.shown.Recent), recentMoves-1)]...)
}
