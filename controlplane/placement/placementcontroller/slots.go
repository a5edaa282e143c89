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

// Parameters of reading slots.
const (
	checkAtOnce  = 8
	checkInRound = 32                   // in turn, whatever happens to their keys
	lookPause    = 5 * time.Millisecond // at least, between looks because of changes in etcd
	looksTake    = 10                   // looks take this part of the time at most: each write is cause for one
	looking      = 2 * time.Second      // for one look
)

// look looks at slots whose keys have changed in etcd.
func (p *Controller) look(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-p.looks:
			// Changes of one key that come together are one.
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

// pauseAfter is how long nothing is looked at after a look that took so long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(lookPause, (looksTake-1)*took), looking)
}

// checkSome looks at the slots that were not looked at for the longest time.
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

// check looks at a placed key's slot, and notes what is wrong with it.
func (p *Controller) check(ctx context.Context, key string) {
	p.mu.Lock()
	at, ok := p.where[key]
	p.mu.Unlock()
	if !ok {
		return
	}
	etcd := p.values.of(key) // before the slot: what is in the slot then must not be older
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

// judge says what is wrong with a slot that placement made in a version, as the tail has it, of a
// key that etcd was seen to have like that before the slot was read. Whether a seal is a gateway's
// only gateways can tell.
func judge(slot admin.KeyState, made uint64, etcd seen) (placement.Fault, string) {
	switch slot.Status {
	case "NOT_FOUND":
		return placement.SlotLost, "its slot is empty: every member of the chain was restarted, or somebody removed it"
	case "OK":
	default: // it did not answer, or a write is on its way to it
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
		if etcd.Lease { // that is the better reason, and placement knows it by itself
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
