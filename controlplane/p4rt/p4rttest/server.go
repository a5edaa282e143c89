// Package p4rttest is a P4Runtime server for tests. It keeps all writes in memory, processes no
// packets, and fails when a test asks for it. With PI set, it behaves like simple_switch_grpc
// wherever a client must allow for that.
package p4rttest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// Server is one device. Set its fields before Start.
type Server struct {
	v1.UnimplementedP4RuntimeServer

	DeviceID uint64
	// PI makes the server behave like PI. It does not implement registers, and it pads values that
	// are read to whole fields. It refuses RECONCILE_AND_COMMIT with UNKNOWN, and then loads
	// nothing else before a COMMIT.
	PI bool
	// Refuse, if set, is called before each update. If it returns an error, the server refuses the
	// update.
	Refuse func(*v1.Update) error
	// PacketOut, if set, receives the packets that the primary sends.
	PacketOut func(*v1.PacketOut)
	// RefuseProgram, if not nil, is called before a program is loaded. If it returns an error, the
	// server answers with that error.
	RefuseProgram func() error
	// Hold, if set, is called first for each *v1.WriteRequest and
	// *v1.SetForwardingPipelineConfigRequest. If it returns an error, the server holds the request
	// until Deliver, as a slow network would, and the caller gets that error. If the error is
	// ErrSilent, the caller gets no answer.
	Hold func(request any) error
	// Version, if set, is the version of NetCRAQ that the server reports.
	Version string
	// TLS makes the server use TLS, if it is not nil.
	TLS *tls.Config

	Addr string // the server's address, which is valid after Start

	mu      sync.Mutex
	grpc    *grpc.Server
	streams []*connection
	// highest is the highest election id that has been primary. A controller with a lower id does
	// not become primary (P4Runtime 1.4.1, section 5.3).
	highest  p4rt.ElectionID
	config   *v1.ForwardingPipelineConfig
	entries  map[string]*v1.TableEntry
	groups   map[uint32]*v1.MulticastGroupEntry
	counters map[uint32]map[int64]int64
	regs     map[uint32]map[int64][]byte
	stuck    bool // the server behaves like PI in the middle of a load
	held     []func() error
	met      int
	writes   int
	batches  []int
}

type connection struct {
	send     sync.Mutex
	stream   v1.P4Runtime_StreamChannelServer
	election p4rt.ElectionID
	end      chan struct{}
}

// ErrSilent makes Hold keep a request without an answer.
var ErrSilent = errors.New("no answer")

// hold reports whether the server holds a request. If so, it also returns the error that the
// request's caller gets.
func (s *Server) hold(ctx context.Context, request any, do func() error) (bool, error) {
	if s.Hold == nil {
		return false, nil
	}
	err := s.Hold(request)
	if err == nil {
		return false, nil
	}
	s.mu.Lock()
	s.held = append(s.held, do)
	s.mu.Unlock()
	if errors.Is(err, ErrSilent) {
		<-ctx.Done()
		return true, status.FromContextError(ctx.Err()).Err()
	}
	return true, err
}

// Held returns how many requests the server holds.
func (s *Server) Held() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.held) }

// Deliver delivers the held requests, in order. It returns their answers.
func (s *Server) Deliver() (answers []error) {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for _, do := range held {
		answers = append(answers, do())
	}
	return answers
}

// Start serves on a loopback port. It chooses a new port if Addr is empty, and otherwise uses the
// port in Addr.
func (s *Server) Start() error {
	addr := s.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.Addr = l.Addr().String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.wipe()
	}
	var options []grpc.ServerOption
	if s.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	v1.RegisterP4RuntimeServer(s.grpc, s)
	go s.grpc.Serve(l)
	return nil
}

// Stop ends all connections. Start then serves the same state again, as after an outage of the
// switch's management network.
func (s *Server) Stop() {
	s.mu.Lock()
	g := s.grpc
	s.mu.Unlock()
	g.Stop()
}

// Empty empties the tables, as if the running program had been loaded again. The streams stay open.
func (s *Server) Empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
}

// Forget drops the pipeline and all state, as a restart does.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.highest = nil, p4rt.ElectionID{}
	s.wipe()
}

func (s *Server) wipe() {
	s.entries = map[string]*v1.TableEntry{}
	s.groups = map[uint32]*v1.MulticastGroupEntry{}
	s.counters = map[uint32]map[int64]int64{}
	s.regs = map[uint32]map[int64][]byte{}
}

// BreakStreams ends the streams, but the server continues.
func (s *Server) BreakStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.streams {
		close(c.end)
	}
	s.streams = nil
}

// Writes returns how many updates have taken effect so far. Batches returns how many updates each
// request had.
func (s *Server) Writes() int    { s.mu.Lock(); defer s.mu.Unlock(); return s.writes }
func (s *Server) Batches() []int { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.batches) }

// Streams returns how many streams there have been so far.
func (s *Server) Streams() int { s.mu.Lock(); defer s.mu.Unlock(); return s.met }

// DeviceConfig returns the p4_device_config of the running pipeline.
func (s *Server) DeviceConfig() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.config.GetP4DeviceConfig())
}

// Entries returns a copy of all table entries.
func (s *Server) Entries() []*v1.TableEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*v1.TableEntry
	for _, e := range s.entries {
		out = append(out, proto.Clone(e).(*v1.TableEntry))
	}
	return out
}

// Groups returns the ids of the server's multicast groups, in order.
func (s *Server) Groups() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.groups))
}

// SetCounter sets the number of packets of one cell of a counter.
func (s *Server) SetCounter(id uint32, index, packets int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters[id] == nil {
		s.counters[id] = map[int64]int64{}
	}
	s.counters[id][index] = packets
}

// PacketIn sends a packet to the primary.
func (s *Server) PacketIn(p *v1.PacketIn) error {
	s.mu.Lock()
	c := s.primary()
	s.mu.Unlock()
	if c == nil {
		return fmt.Errorf("no primary")
	}
	return c.sendMessage(&v1.StreamMessageResponse{Update: &v1.StreamMessageResponse_Packet{Packet: p}})
}

func (c *connection) sendMessage(m *v1.StreamMessageResponse) error {
	c.send.Lock()
	defer c.send.Unlock()
	return c.stream.Send(m)
}

// primary returns the connection with the highest election id so far, or nil if that connection has
// ended. The caller must hold s.mu.
func (s *Server) primary() *connection {
	for _, c := range s.streams {
		if c.election == s.highest {
			return c
		}
	}
	return nil
}

func (s *Server) isPrimary(id *v1.Uint128) bool {
	p := s.primary()
	return p != nil && p.election == p4rt.ElectionID{High: id.GetHigh(), Low: id.GetLow()}
}

// announce tells all connections which controller is primary. The caller must hold s.mu.
func (s *Server) announce() {
	p := s.primary()
	for _, c := range s.streams {
		a := &v1.MasterArbitrationUpdate{DeviceId: s.DeviceID, ElectionId: &v1.Uint128{High: s.highest.High,
			Low: s.highest.Low}}
		switch p {
		case c:
			a.Status = status.New(codes.OK, "Is primary").Proto()
		case nil:
			a.Status = status.New(codes.NotFound, "There is no primary").Proto()
		default:
			a.Status = status.New(codes.AlreadyExists, "Is backup").Proto()
		}
		c.sendMessage(&v1.StreamMessageResponse{Update: &v1.StreamMessageResponse_Arbitration{Arbitration: a}})
	}
}

// StreamChannel implements the RPC StreamChannel.
func (s *Server) StreamChannel(stream v1.P4Runtime_StreamChannelServer) error {
	if s.Version != "" {
		if err := stream.SetHeader(metadata.Pairs(buildinfo.Metadata, s.Version)); err != nil {
			return err
		}
	}
	c := &connection{stream: stream, end: make(chan struct{})}
	failed := make(chan error, 1)
	go func() { failed <- s.receive(c) }()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.streams, c); i >= 0 {
			s.streams = slices.Delete(s.streams, i, i+1)
			if len(s.streams) > 0 {
				s.announce()
			}
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-c.end:
		return status.Error(codes.Aborted, "the test broke the stream")
	}
}

func (s *Server) receive(c *connection) error {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return err
		}
		switch u := m.Update.(type) {
		case *v1.StreamMessageRequest_Arbitration:
			if err := s.arbitrate(c, u.Arbitration); err != nil {
				return err
			}
		case *v1.StreamMessageRequest_Packet:
			s.mu.Lock()
			ok := s.primary() == c && s.PacketOut != nil
			s.mu.Unlock()
			if ok {
				s.PacketOut(u.Packet)
			}
		}
	}
}

func (s *Server) arbitrate(c *connection, a *v1.MasterArbitrationUpdate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.DeviceId != s.DeviceID {
		return status.Errorf(codes.NotFound, "no device %d", a.DeviceId)
	}
	c.election = p4rt.ElectionID{High: a.ElectionId.GetHigh(), Low: a.ElectionId.GetLow()}
	for _, other := range s.streams {
		if other != c && other.election == c.election {
			return status.Error(codes.InvalidArgument, "Election id already exists")
		}
	}
	if c.election.High > s.highest.High || c.election.High == s.highest.High && c.election.Low > s.highest.Low {
		s.highest = c.election
	}
	if !slices.Contains(s.streams, c) {
		s.streams = append(s.streams, c)
		s.met++
	}
	s.announce()
	return nil
}

// SetForwardingPipelineConfig implements the RPC SetForwardingPipelineConfig.
func (s *Server) SetForwardingPipelineConfig(ctx context.Context, r *v1.SetForwardingPipelineConfigRequest) (
	*v1.SetForwardingPipelineConfigResponse, error) {
	if held, err := s.hold(ctx, r, func() error { _, err := s.setPipeline(r); return err }); held {
		return nil, err
	}
	return s.setPipeline(r)
}

func (s *Server) setPipeline(r *v1.SetForwardingPipelineConfigRequest) (
	*v1.SetForwardingPipelineConfigResponse, error) {
	if s.RefuseProgram != nil {
		if err := s.RefuseProgram(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPrimary(r.ElectionId) {
		return nil, status.Error(codes.PermissionDenied, "Not primary")
	}
	switch {
	case r.Action == v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT && s.PI:
		s.stuck = true
		return nil, status.Error(codes.Unknown, "Error when reconciling config")
	case r.Action == v1.SetForwardingPipelineConfigRequest_COMMIT:
		if !s.stuck {
			return nil, status.Error(codes.FailedPrecondition, "Nothing to commit")
		}
		s.stuck = false
		s.wipe()
	case s.stuck:
		return nil, status.Error(codes.Unknown, "Error in first phase of device update")
	case r.Action == v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT:
	default:
		s.wipe()
	}
	s.config = r.Config
	return &v1.SetForwardingPipelineConfigResponse{}, nil
}

// GetForwardingPipelineConfig implements the RPC GetForwardingPipelineConfig.
func (s *Server) GetForwardingPipelineConfig(_ context.Context, r *v1.GetForwardingPipelineConfigRequest) (
	*v1.GetForwardingPipelineConfigResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil {
		return nil, status.Error(codes.FailedPrecondition, "No forwarding pipeline config set for this device")
	}
	out := &v1.ForwardingPipelineConfig{Cookie: s.config.Cookie}
	if r.ResponseType != v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY {
		out.P4Info = s.config.P4Info
	}
	return &v1.GetForwardingPipelineConfigResponse{Config: out}, nil
}

// Write implements the RPC Write.
func (s *Server) Write(ctx context.Context, r *v1.WriteRequest) (*v1.WriteResponse, error) {
	if held, err := s.hold(ctx, r, func() error { _, err := s.write(r); return err }); held {
		return nil, err
	}
	return s.write(r)
}

func (s *Server) write(r *v1.WriteRequest) (*v1.WriteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.isPrimary(r.ElectionId):
		return nil, status.Error(codes.PermissionDenied, "Not primary")
	case s.config == nil:
		return nil, status.Error(codes.FailedPrecondition, "No forwarding pipeline config set for this device")
	}
	s.batches = append(s.batches, len(r.Updates))
	failed := false
	var details []*v1.Error
	for _, u := range r.Updates {
		err := s.update(u)
		if s.Refuse != nil && err == nil {
			err = s.Refuse(u)
		}
		if err == nil {
			s.apply(u)
			s.writes++
		}
		failed = failed || err != nil
		details = append(details, &v1.Error{CanonicalCode: int32(status.Code(err)), Message: status.Convert(
			err).Message()})
	}
	if !failed {
		return &v1.WriteResponse{}, nil
	}
	st := status.New(codes.Unknown, "")
	for _, d := range details {
		st, _ = st.WithDetails(d)
	}
	return nil, st.Err()
}

// update applies an update, or returns why that is not possible.
func (s *Server) update(u *v1.Update) error {
	exists := false
	switch e := u.Entity.Entity.(type) {
	case *v1.Entity_TableEntry:
		if e.TableEntry.IsDefaultAction {
			if u.Type != v1.Update_MODIFY {
				return status.Error(codes.InvalidArgument, "Cannot use INSERT for default entry")
			}
			return nil
		}
		_, exists = s.entries[p4rt.MatchKey(e.TableEntry)]
	case *v1.Entity_PacketReplicationEngineEntry:
		g := e.PacketReplicationEngineEntry.GetMulticastGroupEntry()
		if g == nil {
			return nil
		}
		if g.MulticastGroupId == 0 || g.MulticastGroupId >= 1<<15 {
			return status.Error(codes.OutOfRange, "Group id value is too high")
		}
		_, exists = s.groups[g.MulticastGroupId]
	case *v1.Entity_RegisterEntry:
		if s.PI {
			return status.Error(codes.Unimplemented, "Register writes are not supported yet")
		}
		return nil
	case *v1.Entity_MeterEntry:
		exists = true // every cell of an array exists
	}
	if exists && u.Type == v1.Update_INSERT {
		return status.Error(codes.AlreadyExists, "Match entry exists, use MODIFY if you wish to change action")
	}
	if !exists && u.Type != v1.Update_INSERT {
		return status.Error(codes.NotFound, "Cannot find match entry")
	}
	return nil
}

func (s *Server) apply(u *v1.Update) {
	switch e := u.Entity.Entity.(type) {
	case *v1.Entity_TableEntry:
		k := p4rt.MatchKey(e.TableEntry)
		if u.Type == v1.Update_DELETE {
			delete(s.entries, k)
		} else {
			s.entries[k] = proto.Clone(e.TableEntry).(*v1.TableEntry)
		}
	case *v1.Entity_PacketReplicationEngineEntry:
		if g := e.PacketReplicationEngineEntry.GetMulticastGroupEntry(); g != nil {
			if u.Type == v1.Update_DELETE {
				delete(s.groups, g.MulticastGroupId)
			} else {
				s.groups[g.MulticastGroupId] = g
			}
		}
	case *v1.Entity_RegisterEntry:
		r := e.RegisterEntry
		if s.regs[r.RegisterId] == nil {
			s.regs[r.RegisterId] = map[int64][]byte{}
		}
		s.regs[r.RegisterId][r.Index.GetIndex()] = r.Data.GetBitstring()
	}
}

// Read implements the RPC Read.
func (s *Server) Read(r *v1.ReadRequest, stream v1.P4Runtime_ReadServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil {
		return status.Error(codes.FailedPrecondition, "No forwarding pipeline config set for this device")
	}
	resp := &v1.ReadResponse{}
	for _, what := range r.Entities {
		switch e := what.Entity.(type) {
		case *v1.Entity_TableEntry:
			for _, te := range s.entries {
				if te.TableId == e.TableEntry.TableId && te.IsDefaultAction == e.TableEntry.IsDefaultAction {
					resp.Entities = append(resp.Entities, p4rt.EntryEntity(s.pad(te)))
				}
			}
		case *v1.Entity_PacketReplicationEngineEntry:
			for _, g := range s.groups {
				resp.Entities = append(resp.Entities, &v1.Entity{Entity: &v1.Entity_PacketReplicationEngineEntry{
					PacketReplicationEngineEntry: &v1.PacketReplicationEngineEntry{
						Type: &v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: g},
					}}})
			}
		case *v1.Entity_CounterEntry:
			s.readCounter(e.CounterEntry, resp)
		case *v1.Entity_RegisterEntry:
			if s.PI {
				return status.Error(codes.Unimplemented, "Register reads are not supported yet")
			}
			v := s.regs[e.RegisterEntry.RegisterId][e.RegisterEntry.Index.GetIndex()]
			if v == nil {
				v = []byte{0}
			}
			resp.Entities = append(resp.Entities,
				&v1.Entity{Entity: &v1.Entity_RegisterEntry{RegisterEntry: &v1.RegisterEntry{
					RegisterId: e.RegisterEntry.RegisterId, Index: e.RegisterEntry.Index,
					Data: &v1.P4Data{Data: &v1.P4Data_Bitstring{Bitstring: v}},
				}}})
		}
	}
	return stream.Send(resp)
}

func (s *Server) readCounter(ce *v1.CounterEntry, resp *v1.ReadResponse) {
	i := slices.IndexFunc(s.config.P4Info.Counters, func(c *configv1.Counter) bool {
		return c.Preamble.Id == ce.CounterId
	})
	if i < 0 {
		return
	}
	first, last := int64(0), s.config.P4Info.Counters[i].Size-1
	if ce.Index != nil {
		first, last = ce.Index.Index, ce.Index.Index
	}
	for n := first; n <= last; n++ {
		resp.Entities = append(resp.Entities, &v1.Entity{Entity: &v1.Entity_CounterEntry{CounterEntry: &v1.CounterEntry{
			CounterId: ce.CounterId, Index: &v1.Index{Index: n},
			Data: &v1.CounterData{PacketCount: s.counters[ce.CounterId][n]},
		}}})
	}
}

// pad adds to exact matches and parameters the leading zeros that older targets write.
func (s *Server) pad(te *v1.TableEntry) *v1.TableEntry {
	if !s.PI {
		return te
	}
	te = proto.Clone(te).(*v1.TableEntry)
	for _, m := range te.Match {
		if x := m.GetExact(); x != nil {
			x.Value = append([]byte{0}, x.Value...)
		}
	}
	for _, p := range te.GetAction().GetAction().GetParams() {
		p.Value = append([]byte{0}, p.Value...)
	}
	return te
}
