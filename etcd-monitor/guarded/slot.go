package guarded

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/etcd-monitor/cell"
	"github.com/netcraq/netcraq/wire"
)

// slot is what was read in a slot.
type slot struct {
	cell    cell.Cell // of a kind of 0 if bytes cannot be read: nobody is answered from it, and whoever writes the key replaces it
	bytes   []byte
	version wire.Version
}

// guardedBy says whether a slot has the guard of a session and number.
func (s *slot) guardedBy(lease int64, number uint64) bool {
	return s.cell.Kind == cell.Guard && s.cell.Lease == lease && s.cell.Number == number
}

// look reads a slot.
func (s *Server) look(ctx context.Context, id wire.Key) (slot, error) {
	b, version, err := s.Slots.Read(ctx, id)
	if err != nil {
		return slot{version: version}, err
	}
	c, err := s.Codec.Codec().Decode(b)
	var unknown *cell.DictionaryError
	if errors.As(err, &unknown) {
		s.Runtime.Go(func() { // the next reader has it
			ctx, cancel := s.Runtime.Detach(context.WithoutCancel(ctx))
			defer cancel()
			s.Codec.Want(ctx, unknown.Version)
		})
	}
	return slot{cell: c, bytes: b, version: version}, nil
}

// cellOf is what a slot has to say about a key when etcd has kv for it, nil where it has none, as of a revision.
func (s *Server) cellOf(kv *mvccpb.KeyValue, revision int64) cell.Cell {
	switch {
	case kv == nil:
		return cell.Cell{Kind: cell.Absent, Revision: revision}
	case kv.Lease != 0 && !s.without.lease: // etcd will delete it without telling anybody
		return cell.Cell{Kind: cell.Unfit}
	}
	value := kv.Value
	if value == nil {
		value = []byte{}
	}
	return cell.Cell{Kind: cell.Value, Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Value: value}
}

// alive asks etcd whether a session is there, linearizably.
func (s *Server) alive(ctx context.Context, lease int64) (bool, error) {
	r, err := s.Etcd.Range(ctx, countOf(s.Sessions.Key(lease)))
	if err != nil {
		return true, fmt.Errorf("looking whether session %x is there: %w", lease, err)
	}
	s.saw(r.Header)
	return r.Count > 0, nil
}

// isGone says whether an error of a slot means that the placement is over, or being ended.
func isGone(err error) bool { return errors.Is(err, ErrNoSlot) }

// stillPlaced says whether a placement is, as far as is known, the key's present one.
func (s *Server) stillPlaced(k placed.Key) bool {
	e, ok := s.Directory.Lookup(k.Name)
	return ok && e.Mod == k.Mod
}
