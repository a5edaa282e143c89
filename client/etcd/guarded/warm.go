package guarded

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Warm populates the slots of newly placed keys, until ctx is done. So their first readers need not
// ask etcd. In a cluster, many objects are read a few times in their first second, and then never
// again. Warm populates under the same rule as a reader, so any number of gateways may run it.
func (s *Server) Warm(ctx context.Context) {
	seen := map[wire.Key]bool{}
	for _, k := range s.Directory.LookupRange("\x00", open) {
		seen[wire.Key(k.ID)] = true
	}
	for ctx.Err() == nil {
		changed := s.Directory.Changed()
		now := s.Directory.LookupRange("\x00", open)
		there := make(map[wire.Key]bool, len(now))
		for _, k := range now {
			there[wire.Key(k.ID)] = true
			if !seen[wire.Key(k.ID)] && !s.Excluded(k.Name) && s.Open() {
				s.warm(ctx, k)
			}
		}
		seen = there
		s.Runtime.Wait(ctx, changed, 0)
	}
}

func (s *Server) warm(ctx context.Context, k placement.Key) {
	ctx, cancel := s.Runtime.Detach(ctx)
	defer cancel()
	at, err := s.look(ctx, k)
	switch {
	case err != nil:
		return
	case at.forged != nil:
		s.fault(k, at.version, at.forged)
		return
	case at.cell.Kind != slotcodec.Clear:
		return
	}
	if answer, err := s.fromEtcd(ctx, &pb.RangeRequest{Key: []byte(k.Name)}); err == nil {
		s.populate(ctx, k, at, answer)
	}
}
