package p4rtserver

import (
	"context"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// Write implements the RPC of that name (specification section 12). It attempts every update of the
// batch, in order, unless the caller disconnects meanwhile.
//
// Stopping between two updates is safe. With CONTINUE_ON_ERROR, packets may see the tables between
// any two updates of a batch. So a controller must tolerate a batch of which only the first updates
// were made. If Write stops, the controller gets CANCELLED or DEADLINE_EXCEEDED without errors of
// single updates. So it cannot assume that the other updates were made.
func (s *Server) Write(ctx context.Context, req *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	s.state.Lock()
	defer s.state.Unlock()
	if err := s.mayExecute(ctx, req.DeviceId, keyOfRole(req.Role, writeRoleID(req)),
		req.ElectionId); err != nil {
		return nil, err
	}
	c, err := s.effective()
	if err != nil {
		return nil, err
	}
	if req.Atomicity != p4v1.WriteRequest_CONTINUE_ON_ERROR {
		return nil, status.Errorf(codes.Unimplemented,
			"batches with atomicity %v are not supported; CONTINUE_ON_ERROR is", req.Atomicity)
	}
	outcome := make([]error, 0, len(req.Updates))
	for _, u := range req.Updates {
		if ctx.Err() != nil {
			break
		}
		outcome = append(outcome, c.write(u))
	}
	s.toldOfReplication(c, req.Updates[:len(outcome)])
	// From now on, acknowledged updates must apply to every packet. For example, a controller takes
	// a member's role away so that the member commits nothing more. The same holds for updates that
	// a read can see, so Write also does this for an unfinished batch.
	if err := c.settle(); err != nil {
		return nil, err
	}
	if len(outcome) < len(req.Updates) {
		return nil, callerGone(ctx, "the first %d of %d updates were attempted", len(outcome),
			len(req.Updates))
	}
	if err := translate.BatchError(outcome,
		"some updates of the batch failed; the details have one error for each"); err != nil {
		return nil, err
	}
	return &p4v1.WriteResponse{}, nil
}

// settle returns once all changes made so far apply to every packet.
func (c *config) settle() error {
	err := c.pipe.Barrier()
	c.unsettled.Store(err != nil)
	if err != nil {
		return status.Errorf(codes.Unavailable,
			"updates were made, but packets that began before may still use what was there: %v", err)
	}
	return nil
}

func (c *config) write(u *p4v1.Update) error {
	switch u.GetType() {
	case p4v1.Update_INSERT, p4v1.Update_MODIFY, p4v1.Update_DELETE:
	default:
		return translate.Invalidf("the type of the update is %v; it must be INSERT, MODIFY or DELETE",
			u.GetType())
	}
	switch e := u.GetEntity().GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return c.writeTableEntry(u.Type, e.TableEntry)
	case *p4v1.Entity_ActionProfileMember:
		return c.writeMember(u.Type, e.ActionProfileMember)
	case *p4v1.Entity_ActionProfileGroup:
		return c.writeGroup(u.Type, e.ActionProfileGroup)
	case *p4v1.Entity_MeterEntry:
		return c.writeMeter(u.Type, e.MeterEntry)
	case *p4v1.Entity_DirectMeterEntry:
		return c.writeDirectMeter(u.Type, e.DirectMeterEntry)
	case *p4v1.Entity_CounterEntry:
		return c.writeCounter(u.Type, e.CounterEntry)
	case *p4v1.Entity_DirectCounterEntry:
		return c.writeDirectCounter(u.Type, e.DirectCounterEntry)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		return c.writeReplication(u.Type, e.PacketReplicationEngineEntry)
	case *p4v1.Entity_ValueSetEntry:
		return c.writeValueSet(u.Type, e.ValueSetEntry)
	case *p4v1.Entity_RegisterEntry:
		return c.writeRegister(u.Type, e.RegisterEntry)
	case *p4v1.Entity_DigestEntry:
		return c.writeDigest(u.Type, e.DigestEntry)
	case *p4v1.Entity_ExternEntry:
		return translate.Errorf(codes.Unimplemented, "this target has no externs of type %d",
			e.ExternEntry.GetExternTypeId())
	default:
		return translate.Invalidf("the update has no entity, or one of a kind that this server does not know")
	}
}

// Role ids are deprecated in favour of names, but the specification still requires support for
// them.

//nolint:staticcheck // see above
func writeRoleID(r *p4v1.WriteRequest) uint64 { return r.RoleId }

//nolint:staticcheck // see above
func configRoleID(r *p4v1.SetForwardingPipelineConfigRequest) uint64 { return r.RoleId }
