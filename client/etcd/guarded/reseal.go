package guarded

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// resealPause is how long Reseal pauses between two slots.
const resealPause = 5 * time.Millisecond

// Reseal reads the slots of all placed keys once. It seals cells that were sealed with an older key
// again, with the current key. Otherwise a cell that is never written again would need its old key
// forever. Reseal does not change what cells contain, and does not touch guards. It returns the
// sealing keys that are still in use, and whether it has read every slot.
func (s *Server) Reseal(ctx context.Context) (used map[uint32]bool, whole bool) {
	used, whole = map[uint32]bool{}, true
	for _, k := range s.Directory.LookupRange("\x00", open) {
		if ctx.Err() != nil {
			return used, false
		}
		at, err := s.lookHard(ctx, k)
		switch {
		case isGone(err):
			continue
		case err != nil:
			whole = false
			continue
		case at.forged != nil:
			s.fault(k, at.version, at.forged)
			continue
		}
		primary, _ := s.Seals.Ring().Primary()
		switch with := seal.Key(at.bytes); {
		case with == 0 || with == primary:
			// Placement has written this cell, or the cell is sealed with the current key.
		case at.cell.Kind == slotcodec.Guard:
			used[with] = true
		default:
			if _, err := s.cas(ctx, k, at.version, at.plain); err != nil {
				used[with] = true
			}
		}
		s.Runtime.Wait(ctx, nil, resealPause)
	}
	return used, whole
}
