package placementcontroller

import (
	"context"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
)

// unreachable is a placed key that a gateway could not write, because the key's slot did not answer
// that gateway. Usually the cause is a short failover of the chain, for which the hottest keys
// should not leave the network. So placement waits until the chain is ready, and checks whether any
// gateway then writes the slot. If none does, the gateway is cut off from the chain, and cannot
// write the key. So the key must be removed.
type unreachable struct {
	id      uint32    // KEY_ID of the placement that the report is about
	since   time.Time // when the slot was first read while the chain was ready; zero if it was not yet
	version uint64    // the newest version of the slot at `since`
}

// unreachableWait is how long placement waits for some gateway to write a slot while the chain is
// ready. After that, placement removes the slot's key.
const unreachableWait = 5 * time.Second

// Evict removes a key from the network for a gateway that cannot write it, unless a gateway writes
// it meanwhile.
func (p *Controller) Evict(_ context.Context, e admin.PlacementEviction) error {
	key, err := placement.ParsePrintable(e.Key)
	if err != nil {
		return admin.Errorf(admin.CodeInvalidArgument, "%v", err)
	}
	switch placement.ParseFault(e.Fault) {
	case placement.NoFault, placement.SlotUnreachable:
	case placement.Forged:
		return p.forged(key, e)
	default:
		return admin.Errorf(admin.CodeInvalidArgument, "%q is no fault that a gateway can find: it is %q or %q", e.Fault, placement.SlotUnreachable, placement.Forged)
	}
	p.mu.Lock()
	at, ok := p.where[key]
	// A gateway that names another placement may not know yet that the key was placed again.
	mine := ok && (e.KeyID == 0 || e.KeyID == at.id)
	news := mine && (p.unreachable[key] == nil || p.unreachable[key].id != at.id)
	if news {
		p.unreachable[key] = &unreachable{id: at.id}
	}
	p.mu.Unlock()
	switch {
	case !mine:
		return admin.Errorf(admin.CodeNotFound, "%s is not placed%s", placement.Printable(key), map[bool]string{true: " under that KEY_ID any more"}[ok])
	case news:
		p.o.Network.Announce("placement.slot-unreachable", at.chain, fmt.Sprintf("%s: a gateway asks to remove it: %s", placement.Printable(key), e.Reason))
		p.soon()
	}
	return nil
}

// forged removes a key in whose slot a gateway has found content that no gateway has written.
// Placement cannot check the report, because only gateways can recognize such content. A false
// report can only keep a key out of the network for as long as a key with a fault stays away.
func (p *Controller) forged(key string, e admin.PlacementEviction) error {
	p.mu.Lock()
	at, ok := p.where[key]
	ok = ok && (e.KeyID == 0 || e.KeyID == at.id)
	fault := placement.Forged
	if at.version == 0 { // an earlier version, which did not seal cells, placed the key
		fault = placement.SlotLost
	}
	news := ok && p.faults[key] != fault
	if news {
		p.faults[key] = fault
	}
	p.mu.Unlock()
	switch {
	case !ok:
		return admin.Errorf(admin.CodeNotFound, "%s is not placed under that KEY_ID", placement.Printable(key))
	case news:
		p.o.Network.Announce("placement."+string(fault), at.chain, fmt.Sprintf("%s: a gateway has found what no gateway has written in its slot, and it is removed: %s", placement.Printable(key), e.Reason))
		p.metrics.faults.WithLabelValues(string(fault)).Inc()
		p.soon()
	}
	return nil
}

// judgeUnreachable checks the slots that gateways did not reach.
func (p *Controller) judgeUnreachable(ctx context.Context, chains []admin.Chain) {
	p.mu.Lock()
	pending := map[string]position{}
	for key, m := range p.unreachable {
		if at, ok := p.where[key]; ok && at.id == m.id {
			pending[key] = at
		} else {
			delete(p.unreachable, key)
		}
	}
	p.mu.Unlock()
	for key, at := range pending {
		if !ready(chains, at.chain) {
			p.updateUnreachable(key, func(m *unreachable) bool { m.since = time.Time{}; return false })
			continue
		}
		version, ok := p.newest(ctx, key)
		p.updateUnreachable(key, func(m *unreachable) (over bool) {
			switch {
			case m.since.IsZero():
				m.since, m.version = time.Now(), version
				return false
			case ok && version != m.version: // some gateway writes the slot
				return true
			case time.Since(m.since) < unreachableWait:
				return false
			}
			if p.faults[key] == placement.NoFault {
				p.faults[key] = placement.SlotUnreachable
				p.metrics.faults.WithLabelValues(string(placement.SlotUnreachable)).Inc()
			}
			return true
		})
	}
}

// updateUnreachable calls change for a key whose slot a gateway did not reach, while it holds the
// lock. It forgets the key if change returns false.
func (p *Controller) updateUnreachable(key string, change func(*unreachable) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.unreachable[key]; m != nil && change(m) {
		delete(p.unreachable, key)
	}
}

// newest returns the newest version of a key's slot, at its chain's head.
func (p *Controller) newest(ctx context.Context, key string) (uint64, bool) {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	k, err := p.o.Network.Lookup(ctx, DirectoryName(key), true)
	if err != nil || len(k.State) == 0 || k.State[0].Status == "UNREACHABLE" {
		return 0, false
	}
	return k.State[0].Newest, true
}
