package guarded

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// resealPause is the pause between two slots that Reseal reads.
const resealPause = 5 * time.Millisecond

// Reseal reads the slots of all placed keys once, and reseals cells that were sealed with an older
// key. Otherwise a cell that is never written again would need its old key forever. The content of
// slots does not change. Guards are left to their owners. Reseal returns the sealing keys that are
// still in use, and whether it has seen every slot.
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
		case with == 0 || with == primary: // written by placement, or sealed with the current key
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
