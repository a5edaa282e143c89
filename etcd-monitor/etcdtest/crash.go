package etcdtest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// crash wraps the gRPC handlers of a member, so that the member can crash inside this process.
// etcd's HardStop closes the database while handlers may still read it. A read of a closed database
// panics, which would end the whole package's tests. From the crash on, the wrapper answers no
// request, neither new ones nor those in progress.
type crash struct {
	mu      sync.Mutex
	begun   bool
	running int           // number of requests in progress
	quiet   chan struct{} // closed when begin was called and no request is in progress
	over    chan struct{} // closed when the member has stopped
	stopped sync.Once
}

var errCrashed = status.Error(codes.Unavailable, "this member of the test's cluster crashed")

func newCrash() *crash {
	return &crash{quiet: make(chan struct{}), over: make(chan struct{})}
}

// options returns options for the member's gRPC server.
func (c *crash) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(c.unary),
		grpc.ChainStreamInterceptor(c.stream),
	}
}

func (c *crash) unary(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if !c.enter() {
		return nil, errCrashed
	}
	answer, err := handle(ctx, request)
	if !c.leave() {
		return nil, errCrashed
	}
	return answer, err
}

func (c *crash) stream(
	server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	return handle(server, crashingStream{s, c})
}

// enter is called before a request is handled. Once a crash has begun, it waits until the member
// has stopped, and returns false.
func (c *crash) enter() bool {
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		<-c.over
		return false
	}
	c.running++
	c.mu.Unlock()
	return true
}

// leave is called after a request was handled. It reports whether the request may be answered.
func (c *crash) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.begun && c.running == 0 {
		close(c.quiet)
	}
	return !c.begun
}

// begin starts the crash: it suppresses all answers, and waits for requests in progress. It waits
// only briefly, because a request that waits for a quorum does not read the database.
func (c *crash) begin() {
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		return
	}
	if c.begun = true; c.running == 0 {
		close(c.quiet)
	}
	c.mu.Unlock()
	select {
	case <-c.quiet:
	case <-time.After(200 * time.Millisecond):
	}
}

// end records that the member has stopped.
func (c *crash) end() { c.stopped.Do(func() { close(c.over) }) }

// crashingStream is a gRPC stream of a member that may crash, for example a watch.
type crashingStream struct {
	grpc.ServerStream
	crash *crash
}

func (s crashingStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.open()
}

func (s crashingStream) SendMsg(m any) error {
	if err := s.open(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s crashingStream) open() error {
	s.crash.mu.Lock()
	defer s.crash.mu.Unlock()
	if s.crash.begun {
		return errCrashed
	}
	return nil
}
