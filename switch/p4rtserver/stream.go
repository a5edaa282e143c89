package p4rtserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// maxQueued is the largest number of packet-ins, digests and stream errors that wait for a slow
// controller. Further ones are dropped. Arbitration messages are never dropped.
const maxQueued = 4096

// stream is one StreamChannel call.
type stream struct {
	// The controller's role, or nil before the stream's first arbitration message. The receiving
	// goroutine sets it once, under arbiter.mu.
	role *role
	// The controller's last election id, or nil if the controller sent none. Guarded by arbiter.mu.
	election *p4v1.Uint128

	mu      sync.Mutex
	first   []*p4v1.StreamMessageResponse // arbitration messages, which are sent first
	queue   []*p4v1.StreamMessageResponse // all other messages
	pending chan struct{}                 // contains a token while there is a message to send
}

func newStream() *stream { return &stream{pending: make(chan struct{}, 1)} }

// control queues an arbitration message for the controller.
func (st *stream) control(m *p4v1.StreamMessageResponse) {
	st.mu.Lock()
	st.first = append(st.first, m)
	st.mu.Unlock()
	st.signal()
}

// offer queues messages other than arbitration messages, and reports whether there was room. While
// idle notifications wait to be sent, it accepts no further idle notifications. Entries that stay
// idle are reported again later.
func (st *stream) offer(ms ...*p4v1.StreamMessageResponse) bool {
	isIdle := func(m *p4v1.StreamMessageResponse) bool {
		return m.GetIdleTimeoutNotification() != nil
	}
	st.mu.Lock()
	ok := len(st.queue) < maxQueued &&
		!(slices.ContainsFunc(ms, isIdle) && slices.ContainsFunc(st.queue, isIdle))
	if ok {
		st.queue = append(st.queue, ms...)
	}
	st.mu.Unlock()
	if ok {
		st.signal()
	}
	return ok
}

func (st *stream) signal() {
	select {
	case st.pending <- struct{}{}:
	default:
	}
}

// send sends the queued messages to the controller until ctx ends.
func (st *stream) send(ctx context.Context, to p4v1.P4Runtime_StreamChannelServer) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-st.pending:
		}
		st.mu.Lock()
		batch := append(st.first, st.queue...)
		st.first, st.queue = nil, nil
		st.mu.Unlock()
		for _, m := range batch {
			if err := to.Send(m); err != nil {
				return err
			}
		}
	}
}

// StreamChannel implements the RPC of that name (specification section 16).
func (s *Server) StreamChannel(rpc p4v1.P4Runtime_StreamChannelServer) error {
	// The first answer carries this header. Controllers other than NetCRAQ's ignore it.
	if err := rpc.SetHeader(metadata.Pairs(buildinfo.Metadata, buildinfo.Version())); err != nil {
		return err
	}
	st := newStream()
	defer s.arb.leave(st)
	ctx, cancel := context.WithCancel(rpc.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = st.send(ctx, rpc) // Recv reports an error of the connection, too
	}()
	// gRPC forbids sending after the handler has returned.
	defer func() { cancel(); <-sent }()
	for {
		m, err := rpc.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if a := m.GetArbitration(); a != nil {
			if err := s.arb.update(st, a, s.drain); err != nil {
				return err
			}
			continue
		}
		if e := s.handle(st, m); e != nil {
			st.offer(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Error{
				Error: e}})
		}
	}
}

// drain waits for the writes that have already begun.
func (s *Server) drain() {
	s.state.Lock()
	defer s.state.Unlock()
}

// handle processes a message other than an arbitration message. It returns the message's error
// (section 16.6), or nil.
func (s *Server) handle(st *stream, m *p4v1.StreamMessageRequest) *p4v1.StreamError {
	var err error
	out := &p4v1.StreamError{}
	switch u := m.Update.(type) {
	case *p4v1.StreamMessageRequest_Packet:
		if err = st.mayAct("send packets"); err == nil {
			err = s.packetOut(u.Packet)
		}
		out.Details = &p4v1.StreamError_PacketOut{PacketOut: &p4v1.PacketOutError{
			PacketOut: u.Packet}}
	case *p4v1.StreamMessageRequest_DigestAck:
		if err = st.mayAct("acknowledge digests"); err == nil {
			err = s.digestAck(u.DigestAck)
		}
		out.Details = &p4v1.StreamError_DigestListAck{DigestListAck: &p4v1.DigestListAckError{
			DigestListAck: u.DigestAck}}
	case *p4v1.StreamMessageRequest_Other:
		err = translate.Errorf(codes.Unimplemented, "stream messages of type %q are not known here",
			u.Other.GetTypeUrl())
		out.Details = &p4v1.StreamError_Other{Other: &p4v1.StreamOtherError{Other: u.Other}}
	default:
		err = translate.Invalidf("the stream message is empty, or of a kind that this server does not know")
		out.Details = &p4v1.StreamError_Other{Other: &p4v1.StreamOtherError{}}
	}
	if err == nil {
		return nil
	}
	c := translate.Canonical(err)
	out.CanonicalCode, out.Message = int32(c.Code()), c.Message()
	return out
}

// mayAct refuses actions that only a primary may take.
func (st *stream) mayAct(what string) error {
	if st.role == nil {
		return translate.Errorf(codes.PermissionDenied,
			"only a primary controller may %s; this stream has not sent an arbitration message yet",
			what)
	}
	if !st.role.leads(st) {
		return translate.Errorf(codes.PermissionDenied,
			"only the primary controller may %s; this one is a backup", what)
	}
	return nil
}

// toPrimaries offers messages to the primary of every role. It reports whether a controller
// accepted them, or there were no messages.
func (s *Server) toPrimaries(ms ...*p4v1.StreamMessageResponse) bool {
	taken := len(ms) == 0
	for _, r := range *s.arb.list.Load() {
		if p := r.primary.Load(); p != nil && p.stream.offer(ms...) {
			taken = true
		}
	}
	if !taken {
		s.dropped.Add(1)
	}
	return taken
}

// authorize makes the checks that precede every change, in the order that section 12 requires:
// device, role, primary.
func (s *Server) authorize(device uint64, k roleKey, election *p4v1.Uint128) error {
	if err := s.checkDevice(device); err != nil {
		return err
	}
	r := s.arb.known(k)
	if r == nil {
		return status.Errorf(codes.NotFound,
			"no controller has taken the role %q (id %d) on this device", k.name, k.id)
	}
	if !r.isPrimary(election) {
		return status.Error(codes.PermissionDenied,
			"the election id is not that of the primary controller of this role")
	}
	return nil
}

// mayExecute makes the checks at the beginning of a change. It is called with s.state held, when
// the change is executed, rather than when the request arrives. A request that has waited, for the
// lock or in the network, may be from a controller that is not primary any more. A new primary
// waits for the same lock (drain). So no change of an earlier primary is executed after the new
// primary has learned that it is primary. Changes of a caller that has disconnected are not
// executed either, because the caller does not rely on them.
func (s *Server) mayExecute(ctx context.Context, device uint64, k roleKey,
	election *p4v1.Uint128) error {
	if err := s.authorize(device, k, election); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return callerGone(ctx, "nothing was done")
	}
	return nil
}

// callerGone returns the error of a call whose context has ended.
func callerGone(ctx context.Context, format string, args ...any) error {
	st := status.FromContextError(ctx.Err())
	return status.Errorf(st.Code(), "the caller has gone (%s): %s", st.Message(),
		fmt.Sprintf(format, args...))
}
