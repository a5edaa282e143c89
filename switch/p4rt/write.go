package p4rt

import (
	"context"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Write implements the RPC of that name (specification section 12). Every update of the batch is
// attempted, in order.
func (s *Server) Write(_ context.Context, req *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	s.state.Lock()
	defer s.state.Unlock()
	if err := s.authorize(req.DeviceId, keyOfRole(req.Role, writeRoleID(req)),
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
	outcome := make([]error, len(req.Updates))
	for i, u := range req.Updates {
		outcome[i] = c.write(u)
	}
	s.toldOfReplication(c, req.Updates)
	// What has been acknowledged counts for every packet from then on: a controller takes a
	// member's role away so that it commits nothing more.
	if err := c.pipe.Barrier(); err != nil {
		return nil, status.Errorf(codes.Unavailable,
			"the updates were made, but packets that began before may still use what was there; write again: %v", err)
	}
	if err := batchError(outcome,
		"some updates of the batch failed; the details have one error for each"); err != nil {
		return nil, err
	}
	return &p4v1.WriteResponse{}, nil
}

func (c *config) write(u *p4v1.Update) error {
	switch u.GetType() {
	case p4v1.Update_INSERT, p4v1.Update_MODIFY, p4v1.Update_DELETE:
	default:
		return invalid("the type of the update is %v; it must be INSERT, MODIFY or DELETE",
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
		return fail(codes.Unimplemented, "this target has no externs of type %d",
			e.ExternEntry.GetExternTypeId())
	default:
		return invalid("the update has no entity, or one of a kind that this server does not know")
	}
}

// Role ids are deprecated in favour of names, yet still the specification's to accept.

//nolint:staticcheck // see above
func writeRoleID(r *p4v1.WriteRequest) uint64 { return r.RoleId }

//nolint:staticcheck // see above
func configRoleID(r *p4v1.SetForwardingPipelineConfigRequest) uint64 { return r.RoleId }
