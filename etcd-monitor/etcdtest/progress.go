package etcdtest

import (
	"context"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// EarlyProgress makes an etcd answer progress requests as version 3.4.23 may do it: at once, before
// it has sent earlier events.
type EarlyProgress struct {
	Version  string        // version that the etcd reports as its own
	Revision atomic.Int64  // revision in the etcd's progress answers
	Requests atomic.Int64  // number of progress requests
	Release  chan struct{} // the etcd sends no event until this is closed
}

// NewEarlyProgress makes an EarlyProgress whose etcd withholds its events until Release is closed.
func NewEarlyProgress(version string) *EarlyProgress {
	return &EarlyProgress{Version: version, Release: make(chan struct{})}
}

// Adjust is the function for [Options].Adjust.
func (e *EarlyProgress) Adjust(c *embed.Config) {
	c.GRPCAdditionalServerOptions = append(c.GRPCAdditionalServerOptions,
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			answer, err := handle(ctx, request)
			if s, ok := answer.(*pb.StatusResponse); ok {
				s.Version = e.Version
			}
			return answer, err
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			return handle(server, &earlyStream{ServerStream: stream, early: e})
		}))
}

type earlyStream struct {
	grpc.ServerStream
	early *EarlyProgress
	mu    sync.Mutex
}

func (s *earlyStream) RecvMsg(m any) error {
	for {
		if err := s.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		if r, ok := m.(*pb.WatchRequest); !ok || r.GetProgressRequest() == nil {
			return nil
		}
		s.early.Requests.Add(1)
		if err := s.send(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: s.early.Revision.Load()},
			WatchId: -1}); err != nil {
			return err
		}
	}
}

func (s *earlyStream) SendMsg(m any) error {
	if r, ok := m.(*pb.WatchResponse); ok && len(r.Events) > 0 {
		select {
		case <-s.early.Release:
		case <-s.Context().Done():
		}
	}
	return s.send(m)
}

func (s *earlyStream) send(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}
