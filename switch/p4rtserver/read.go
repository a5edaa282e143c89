package p4rtserver

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// chunkBytes is the approximate size of one ReadResponse. By default, clients accept up to 4 MiB.
const chunkBytes = 512 << 10

// Read implements the RPC of that name (specification section 13). It first collects the result,
// and sends it after it has released the lock. So a slow client does not block others.
func (s *Server) Read(req *p4v1.ReadRequest, rpc p4v1.P4Runtime_ReadServer) error {
	since := metadata.ValueFromIncomingContext(rpc.Context(), SinceHeader)
	chunks, header, outcome, err := s.collect(req, since)
	if err != nil {
		return err
	}
	if header != nil {
		if err := rpc.SetHeader(header); err != nil {
			return err
		}
	}
	for _, chunk := range chunks {
		if err := rpc.Send(chunk); err != nil {
			return err
		}
	}
	return translate.BatchError(outcome,
		"some requests of the batch failed; the details have one error for each")
}

// collect reads the entities of a request. since is the value of SinceHeader in the request's
// metadata.
func (s *Server) collect(req *p4v1.ReadRequest, since []string) (chunks []*p4v1.ReadResponse,
	header metadata.MD, outcome []error, err error) {
	s.state.RLock()
	defer s.state.RUnlock()
	if err := s.checkDevice(req.DeviceId); err != nil {
		return nil, nil, nil, err
	}
	c, err := s.effective()
	if err != nil {
		return nil, nil, nil, err
	}
	// a reader assumes that every update that it can see applies to all packets
	if c.unsettled.Load() {
		if err := c.settle(); err != nil {
			return nil, nil, nil, err
		}
	}
	var out response
	outcome = make([]error, len(req.Entities))
	if r := c.whole(req); r != nil && len(since) == 1 {
		header, outcome[0] = c.readSince(r, since[0], &out)
		return out.chunks, header, outcome, nil
	}
	for i := 0; i < len(req.Entities); i++ {
		e := req.Entities[i]
		r := e.GetRegisterEntry()
		if r == nil {
			outcome[i] = c.read(e, out.add)
			continue
		}
		// Consecutive cells are read in one call, because each call of an engine has a cost.
		n := c.adjacent(req.Entities[i:])
		if outcome[i] = c.readRegisters(r, n, &out); n > 1 {
			for j := range n - 1 {
				outcome[i+1+j] = outcome[i]
			}
			i += n - 1
		}
	}
	return out.chunks, nil, outcome, nil
}

// response collects the entities of an answer in order.
type response struct {
	chunks []*p4v1.ReadResponse
	room   int // number of bytes left in the last chunk
}

func (r *response) add(e *p4v1.Entity) {
	size := proto.Size(e)
	r.reserve(size)
	last := r.chunks[len(r.chunks)-1]
	last.Entities = append(last.Entities, e)
}

// addEncoded adds entities that are encoded as fields of a ReadResponse, and ends this message. A
// later entity in the message's other fields would be sent before the encoded entities.
func (r *response) addEncoded(b []byte) {
	r.reserve(len(b))
	last := r.chunks[len(r.chunks)-1].ProtoReflect()
	last.SetUnknown(append(last.GetUnknown(), b...))
	r.room = 0
}

func (r *response) reserve(size int) {
	if len(r.chunks) == 0 || size > r.room {
		r.chunks = append(r.chunks, &p4v1.ReadResponse{})
		r.room = chunkBytes
	}
	r.room -= size
}

func (c *config) read(q *p4v1.Entity, emit func(*p4v1.Entity)) error {
	switch e := q.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return c.readTableEntries(e.TableEntry, emit)
	case *p4v1.Entity_ActionProfileMember:
		return c.readMembers(e.ActionProfileMember, emit)
	case *p4v1.Entity_ActionProfileGroup:
		return c.readGroups(e.ActionProfileGroup, emit)
	case *p4v1.Entity_MeterEntry:
		return c.readMeters(e.MeterEntry, emit)
	case *p4v1.Entity_DirectMeterEntry:
		return c.readDirectMeters(e.DirectMeterEntry, emit)
	case *p4v1.Entity_CounterEntry:
		return c.readCounters(e.CounterEntry, emit)
	case *p4v1.Entity_DirectCounterEntry:
		return c.readDirectCounters(e.DirectCounterEntry, emit)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		return c.readReplication(e.PacketReplicationEngineEntry, emit)
	case *p4v1.Entity_ValueSetEntry:
		return c.readValueSets(e.ValueSetEntry, emit)
	case *p4v1.Entity_DigestEntry:
		return c.readDigests(e.DigestEntry, emit)
	case *p4v1.Entity_ExternEntry:
		if e.ExternEntry.GetExternTypeId() == 0 {
			return nil // The request is for all extern instances, and there are none.
		}
		return translate.Errorf(codes.Unimplemented, "this target has no externs of type %d",
			e.ExternEntry.GetExternTypeId())
	default:
		return translate.Invalidf("the request has no entity, or one of a kind that this server does not know")
	}
}
