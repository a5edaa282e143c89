package etcdlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const (
	soon      = 30 * time.Second // generous limit for what happens at once on an idle machine
	rangeName = "/etcdserverpb.KV/Range"
	watchName = "/etcdserverpb.Watch/Watch"
)

// server is a gRPC server. It answers a Range with the key, and with as many bytes as the request's
// limit says.
type server struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	address string
	grpc    *grpc.Server
	hangs   atomic.Int32  // number of calls for the key "hang" under way
	release chan struct{} // closed to end the calls for the key "hang"
	fed     chan int      // sizes of the events that a watch sends
}

func serve(t *testing.T, o ...grpc.ServerOption) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String(), grpc: grpc.NewServer(o...), release: make(chan struct{}),
		fed: make(chan int, 100)}
	pb.RegisterKVServer(s.grpc, s)
	pb.RegisterWatchServer(s.grpc, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.grpc.Serve(l)
	}()
	t.Cleanup(func() {
		s.grpc.Stop()
		<-done
	})
	return s
}

func (s *server) Range(ctx context.Context, in *pb.RangeRequest) (*pb.RangeResponse, error) {
	switch string(in.Key) {
	case "fail":
		return nil, status.Error(codes.PermissionDenied, "etcdserver: 100 % denied: ž\n")
	case "hang":
		s.hangs.Add(1)
		defer s.hangs.Add(-1)
		select {
		case <-s.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &pb.RangeResponse{Count: int64(len(in.Key)), Kvs: []*mvccpb.KeyValue{{Key: in.Key,
		Value: bytes.Repeat([]byte("v"), int(in.Limit))}}}, nil
}

func (s *server) Watch(stream pb.Watch_WatchServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.WatchResponse{Created: true, CancelReason: strings.Join(md["hasleader"], "") +
		string(in.GetCreateRequest().GetKey())}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case size := <-s.fed:
			if size < 0 {
				return status.Error(codes.OutOfRange, "enough")
			}
			if err := stream.Send(&pb.WatchResponse{CancelReason: strings.Repeat("e", size)}); err != nil {
				return err
			}
		}
	}
}

func connect(t *testing.T, address string, o Options) *Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	o.Scheme, o.Authority, o.UserAgent = "http", address, "test"
	if o.Silence == 0 {
		o.Silence, o.Answer = soon, soon
	}
	c, err := New(ctx, nc, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (c *Conn) get(ctx context.Context, key string, size int) error {
	out := new(pb.RangeResponse)
	if err := c.Invoke(ctx, rangeName, &pb.RangeRequest{Key: []byte(key), Limit: int64(size)}, out); err != nil {
		return err
	}
	if out.Count != int64(len(key)) || len(out.Kvs) != 1 || string(out.Kvs[0].Key) != key ||
		len(out.Kvs[0].Value) != size {
		return fmt.Errorf("the answer to %.20q is of %.20q, with %d bytes", key, out.Kvs[0].Key, len(out.Kvs[0].Value))
	}
	return nil
}

// TestManyCallers checks that many concurrent callers each get the answer to their own request, of
// any size. Errors must arrive as the server made them.
func TestManyCallers(t *testing.T) {
	c := connect(t, serve(t).address, Options{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 40 {
				key := fmt.Sprintf("%d-%d", i, n)
				size := []int{0, 1, 16 << 10, 100_000}[(i+n)%4]
				if i == 0 && n == 30 {
					size = 3 * streamWindow
				}
				if n%9 == 0 {
					key = strings.Repeat(key, 500)
				}
				for errors.Is(c.get(t.Context(), key, size), ErrNotSent) { // retry while the window is full
					time.Sleep(time.Millisecond)
				}
				if err := c.get(t.Context(), key, size); err != nil && !errors.Is(err, ErrNotSent) {
					t.Error(err)
				}
				err := c.get(t.Context(), "fail", 0)
				if s, _ := status.FromError(err); !errors.Is(err, ErrNotSent) && (s.Code() != codes.PermissionDenied ||
					s.Message() != "etcdserver: 100 % denied: ž\n") {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if !c.Usable() {
		t.Error("the connection has ended")
	}
}

// TestCallsEndWithTheirContexts checks that a call ends when its context ends, and that other calls
// continue. It does not matter whether the caller itself reads the connection.
func TestCallsEndWithTheirContexts(t *testing.T) {
	s := serve(t)
	c := connect(t, s.address, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	var got [4]error
	var all sync.WaitGroup
	for i, of := range []context.Context{ctx, late, ctx, t.Context()} { // the first call reads the connection
		all.Go(func() { got[i] = c.get(of, "hang", 7) })
		poll.Until(t, soon, "the call", func() bool { return s.hangs.Load() >= int32(i+1) || late.Err() != nil })
	}
	<-late.Done()
	cancel()
	poll.Until(t, soon, "three calls' ends", func() bool { return s.hangs.Load() == 1 })
	if err := c.get(t.Context(), "other", 7); err != nil {
		t.Error(err)
	}
	close(s.release)
	all.Wait()
	for i, want := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Canceled, codes.OK} {
		if status.Code(got[i]) != want {
			t.Errorf("call %d: %v, want %v", i, got[i], want)
		}
	}
	if err := c.get(ctx, "k", 1); status.Code(err) != codes.Canceled {
		t.Errorf("a call whose context has ended before: %v", err)
	}
	if err := c.get(t.Context(), "k", 1); err != nil {
		t.Error(err)
	}
}

// TestStream checks that a stream gets each message at once, of any size, and that the server gets
// the metadata. A stream must end when its context ends, with the server's status, or with an error
// of its receiver.
func TestStream(t *testing.T) {
	s := serve(t)
	c := connect(t, s.address, Options{})
	watch := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte("k")}}}
	refused := errors.New("refused")
	for name, want := range map[string]error{"context": context.Canceled, "status": nil, "receiver": refused} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan int, 100)
			ended := make(chan error, 1)
			go func() {
				ended <- c.Stream(ctx, watchName, watch, func(message []byte) error {
					var answer pb.WatchResponse
					if err := answer.Unmarshal(message); err != nil {
						return err
					}
					if answer.Created {
						if answer.CancelReason != "truek" {
							t.Errorf("the server got %q", answer.CancelReason)
						}
						got <- -1
						return nil
					}
					if got <- len(answer.CancelReason); len(answer.CancelReason) == 5 {
						return refused
					}
					return nil
				}, requireLeader)
			}()
			next := func(want int) {
				t.Helper()
				select {
				case n := <-got:
					if n != want {
						t.Fatalf("a message of %d bytes, want %d", n, want)
					}
				case err := <-ended:
					t.Fatal(err)
				case <-time.After(soon):
					t.Fatalf("the message of %d bytes does not come", want)
				}
			}
			next(-1)
			for _, size := range []int{1, 0, 2 * streamWindow, 16 << 10, 3} {
				s.fed <- size
				next(size)
				if err := c.get(t.Context(), "k", 1); err != nil { // other calls work while the stream exists
					t.Fatal(err)
				}
			}
			switch name {
			case "context":
				cancel()
			case "status":
				s.fed <- -1
			case "receiver":
				s.fed <- 5
			}
			select {
			case err := <-ended:
				if name == "status" && status.Code(err) != codes.OutOfRange || name == "context" && status.Code(err) != codes.Canceled ||
					name == "receiver" && !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(soon):
				t.Fatal("it does not end")
			}
		})
	}
	if err := c.get(t.Context(), "k", 1); err != nil {
		t.Error(err)
	}
}

// TestPings checks that the connection answers the server's pings, both when it is idle and when a
// caller waits.
func TestPings(t *testing.T) {
	s := serve(t, grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: time.Second}))
	c := connect(t, s.address, Options{})
	waits := connect(t, s.address, Options{})
	ended := make(chan error, 1)
	go func() { ended <- waits.get(t.Context(), "hang", 1) }()
	time.Sleep(3500 * time.Millisecond)
	if err := c.get(t.Context(), "k", 1); err != nil {
		t.Errorf("after three pings: %v", err)
	}
	close(s.release)
	if err := <-ended; err != nil {
		t.Errorf("after three pings: %v", err)
	}
}

// TestServerEnds checks that a server that stops lets calls under way finish, and that a server
// that disappears ends them. An idle connection must notice that the server is gone.
func TestServerEnds(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprint("graceful ", graceful), func(t *testing.T) {
			s := serve(t)
			c, idle := connect(t, s.address, Options{}), connect(t, s.address, Options{})
			ended := make(chan error, 1)
			go func() { ended <- c.get(t.Context(), "hang", 1) }()
			poll.Until(t, soon, "the call", func() bool { return s.hangs.Load() == 1 })
			if graceful {
				go s.grpc.GracefulStop()
			} else {
				go s.grpc.Stop()
			}
			poll.Until(t, soon, "no more calls", func() bool { return !c.Usable() && !idle.Usable() })
			if err := c.get(t.Context(), "k", 1); !errors.Is(err, ErrNotSent) {
				t.Errorf("a call after the end: %v", err)
			}
			close(s.release)
			want := codes.OK
			if !graceful {
				want = codes.Unavailable
			}
			if err := <-ended; status.Code(err) != want {
				t.Errorf("the call ended with %v, want %v", err, want)
			}
			for _, c := range []*Conn{c, idle} {
				select {
				case <-c.Done():
				case <-time.After(soon):
					t.Error("the connection does not end")
				}
			}
		})
	}
}

// TestRoom checks that a server with a limit for calls or bytes does not get more than its limit.
func TestRoom(t *testing.T) {
	s := serve(t, grpc.MaxConcurrentStreams(2))
	c := connect(t, s.address, Options{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := c.get(t.Context(), "hang", 1); err != nil {
				t.Error(err)
			}
		})
	}
	poll.Until(t, soon, "two calls", func() bool { return s.hangs.Load() == 2 })
	if err := c.get(t.Context(), "k", 1); !errors.Is(err, ErrNotSent) {
		t.Errorf("a third call: %v", err)
	}
	close(s.release)
	all.Wait()
	if err := c.get(t.Context(), strings.Repeat("k", 1<<20), 1); !errors.Is(err, ErrNotSent) {
		t.Errorf("a request of 1 MiB: %v", err)
	}
	if err := c.get(t.Context(), strings.Repeat("k", 60_000), 1); err != nil {
		t.Error(err)
	}
}

func kvs(key string) []*mvccpb.KeyValue { return []*mvccpb.KeyValue{{Key: []byte(key)}} }
