package placementcontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// These constants control how slots are read.
const (
	checkAtOnce = 8
	// checkInRound is the number of slots that each round checks in turn, even if their keys do not
	// change.
	checkInRound = 32
	lookPause    = 5 * time.Millisecond // minimum pause between two checks after changes in etcd
	looksTake    = 10                   // checks take at most one tenth of the time, because each write causes a check
	looking      = 2 * time.Second      // time limit of one check
)

// look checks slots whose keys have changed in etcd.
func (p *Controller) look(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-p.looks:
			// Several waiting changes of one key need only one check.
			changed := map[string]bool{key: true}
			for n := len(p.looks); n > 0; n-- {
				changed[<-p.looks] = true
			}
			for key := range changed {
				begun := time.Now()
				p.check(ctx, key)
				select {
				case <-ctx.Done():
					return
				case <-time.After(pauseAfter(time.Since(begun))):
				}
			}
		}
	}
}

// pauseAfter returns how long to pause after a check, given how long the check took.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(lookPause, (looksTake-1)*took), looking)
}

// checkSome checks the slots whose last check is the oldest.
func (p *Controller) checkSome(ctx context.Context) {
	var keys []string
	for key := range p.entries {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(p.checked[a].Compare(p.checked[b]),
			cmp.Compare(a, b))
	})
	keys = keys[:min(len(keys), checkInRound)]
	each(keys, checkAtOnce, func(key string) { p.check(ctx, key) })
	for _, key := range keys {
		p.checked[key] = time.Now()
	}
	for key := range p.checked {
		if _, ok := p.entries[key]; !ok {
			delete(p.checked, key)
		}
	}
}

// check reads a placed key's slot, and notes any fault.
func (p *Controller) check(ctx context.Context, key string) {
	p.mu.Lock()
	at, ok := p.where[key]
	p.mu.Unlock()
	if !ok {
		return
	}
	etcd := p.values.of(key) // read etcd before the slot, so that the slot's content is never older
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	k, err := p.o.Network.LookupTail(ctx, DirectoryName(key))
	var fault placement.Fault
	why := ""
	switch {
	case errors.Is(err, &admin.Error{Code: admin.CodeNotFound}):
		fault, why = placement.SlotLost, "the controller does not have it"
	case err != nil || len(k.State) == 0:
		return
	case k.KeyID != at.id:
		fault, why = placement.SlotLost, "it has another KEY_ID: was it moved to another chain?"
	default:
		fault, why = judge(k.State[len(k.State)-1], at.version, etcd)
	}
	p.mu.Lock()
	news := p.where[key].id == at.id && fault != placement.NoFault && p.faults[key] != fault
	if news {
		p.faults[key] = fault
	}
	p.mu.Unlock()
	if news {
		p.o.Network.Announce("placement."+string(fault), "", fmt.Sprintf("%s: %s", placement.Printable(key), why))
		p.metrics.faults.WithLabelValues(string(fault)).Inc()
		p.soon()
	}
}

// judge returns what is wrong with a slot that placement filled in version made. It takes the
// slot's state at the tail, and the key's state in etcd, which was read before the slot. It does
// not check seals, because only gateways can tell whether a gateway made a seal.
func judge(slot admin.KeyState, made uint64, etcd seen) (placement.Fault, string) {
	switch slot.Status {
	case "NOT_FOUND":
		return placement.SlotLost, "its slot is empty: every member of the chain was restarted, or somebody removed it"
	case "OK":
	default: // the member did not answer, or has not committed a write yet
		return placement.NoFault, ""
	}
	if made == 0 {
		return placement.SlotLost, "it was placed when cells were not sealed"
	}
	if err := slotcodec.CheckSlot(slot.Value, slot.Version, made); err != nil {
		return placement.Forged, fmt.Sprintf("no gateway has written its slot: %v", err)
	}
	kind, revision, _, err := slotcodec.ReadSlot(slot.Value)
	switch {
	case err != nil:
		return placement.Forged, fmt.Sprintf("no gateway has written its slot: %v", err)
	case kind == slotcodec.Unfit:
		if etcd.Lease { // the lease is the better reason, and placement knows it without the slot
			return placement.NoFault, ""
		}
		return placement.ValueTooLarge, "a gateway could not put the value into its slot"
	case !etcd.Known || kind != slotcodec.Value && kind != slotcodec.Absent:
		return placement.NoFault, ""
	case kind == slotcodec.Value && (revision < etcd.revision || etcd.Absent && revision == etcd.revision):
		return placement.Bypassed, fmt.Sprintf("the network has the value of revision %d, and etcd had changed it in %d: somebody writes past the gateways", revision, etcd.revision)
	case kind == slotcodec.Absent && !etcd.Absent && revision < etcd.revision:
		return placement.Bypassed, fmt.Sprintf("the network says that there was no such key in revision %d, and etcd had it in %d: somebody writes past the gateways", revision, etcd.revision)
	}
	return placement.NoFault, ""
}
