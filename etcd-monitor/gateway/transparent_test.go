package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// upstreamed serves every method with handler, in place of etcd. It returns a connection to this
// server through a gateway.
func upstreamed(t *testing.T, cfg Config, handler grpc.StreamHandler) (*grpc.ClientConn, started) {
	t.Helper()
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(handler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	g := begin(t, cfg, "http://"+l.Addr().String())
	c, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(g.Endpoint, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, g
}

var both = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// TestTransparent checks that the gateway forwards messages, metadata, headers, trailers, and
// errors with their details unchanged. It does so for etcd's single requests and streams, and for
// unknown services.
func TestTransparent(t *testing.T) {
	failure, err := status.New(codes.ResourceExhausted, "etcdserver: so it is").WithDetails(
		&errdetails.RetryInfo{}, &errdetails.BadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	requests := [][]byte{{}, {0xff, 0xff, 0xff}, []byte("not a message"), bytes.Repeat([]byte{7}, 1<<20)}
	for _, method := range []string{"/etcdserverpb.KV/Range", "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/DeleteRange", "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Watch/Watch",
		"/etcdserverpb.Maintenance/Snapshot", "/etcdserverpb.Future/NotYet", "/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		for _, fail := range []bool{false, true} {
			streams, known := methods[method]
			single := known && !streams
			var got metadata.MD
			var heard [][]byte
			var deadline bool
			c, _ := upstreamed(t, Config{}, func(_ any, s grpc.ServerStream) error {
				got, _ = metadata.FromIncomingContext(s.Context())
				_, deadline = s.Context().Deadline()
				s.SetHeader(metadata.Pairs("x-header", "h1", "x-header", "h2", "x-bin", "\x00\xff"))
				s.SetTrailer(metadata.Pairs("x-trailer", "t"))
				for {
					var f frame
					if err := s.RecvMsg(&f); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						return err
					}
					heard = append(heard, f.bytes)
					if single && fail {
						break // a single request gets at most one answer
					}
					if err := s.SendMsg(&frame{append([]byte("re: "), f.bytes...)}); err != nil {
						return err
					}
				}
				if fail {
					return failure.Err()
				}
				return nil
			})
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "token", "abc.1",
				"hasleader", "true", "client-api-version", "9.9", "k-bin", "\x01\xfe"), 10*time.Second)
			stream, err := c.NewStream(ctx, both, method)
			if err != nil {
				t.Fatal(err)
			}
			send := requests
			if single {
				send = requests[3:]
			}
			var back [][]byte
			for _, r := range send {
				if err := stream.SendMsg(&frame{r}); err != nil {
					t.Fatal(err)
				}
			}
			stream.CloseSend()
			var end error
			for {
				var f frame
				if end = stream.RecvMsg(&f); end != nil {
					break
				}
				back = append(back, f.bytes)
			}
			if !slices.EqualFunc(heard, send, bytes.Equal) {
				t.Errorf("%s: the server heard %d messages, not the %d that were sent", method, len(heard), len(send))
			}
			if want := len(send); !(single && fail) &&
				(len(back) != want || !bytes.Equal(back[want-1], append([]byte("re: "), send[want-1]...))) {
				t.Errorf("%s: %d answers, want %d", method, len(back), want)
			}
			for k, want := range map[string]string{"token": "abc.1", "hasleader": "true", "client-api-version": "9.9", "k-bin": "\x01\xfe"} {
				if v := got[k]; len(v) != 1 || v[0] != want {
					t.Errorf("%s: metadata %s is %q, want %q", method, k, v, want)
				}
			}
			if got[notTheName] != nil {
				t.Errorf("%s: metadata %s without a certificate", method, notTheName)
			}
			if !deadline {
				t.Errorf("%s: the deadline was lost", method)
			}
			header, _ := stream.Header()
			if !(single && fail) && (!slices.Equal(header["x-header"], []string{"h1", "h2"}) ||
				!slices.Equal(header["x-bin"], []string{"\x00\xff"})) {
				t.Errorf("%s: header %v", method, header)
			}
			if trailer := stream.Trailer(); !slices.Equal(trailer["x-trailer"], []string{"t"}) {
				t.Errorf("%s: trailer %v", method, trailer)
			}
			switch {
			case !fail && !errors.Is(end, io.EOF):
				t.Errorf("%s: ended with %v", method, end)
			case fail && (status.Code(end) != codes.ResourceExhausted ||
				len(status.Convert(end).Details()) != 2 || status.Convert(end).Message() != failure.Message()):
				t.Errorf("%s: ended with %v, details %v", method, end, status.Convert(end).Details())
			}
			cancel()
		}
	}
}

// TestCancelled checks that when a client leaves, its request at etcd is cancelled.
func TestCancelled(t *testing.T) {
	for _, method := range []string{"/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"} {
		there, gone := make(chan struct{}), make(chan struct{})
		c, _ := upstreamed(t, Config{}, func(_ any, s grpc.ServerStream) error {
			var f frame
			s.RecvMsg(&f)
			close(there)
			<-s.Context().Done()
			close(gone)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.NewStream(ctx, both, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&frame{}); err != nil {
			t.Fatal(err)
		}
		stream.CloseSend()
		<-there
		cancel()
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Errorf("%s: 5 s after the client has gone etcd still works for it", method)
		}
	}
}

// TestNewest checks that the gateway takes revisions from the answers of etcd's services, single
// requests and streams, and from no other service.
func TestNewest(t *testing.T) {
	answer := func(revision int64) *frame {
		b, err := (&pb.WatchResponse{Header: &pb.ResponseHeader{ClusterId: 1 << 63, Revision: revision},
			WatchId: 3}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return &frame{b}
	}
	next := make(chan int64, 10)
	c, g := upstreamed(t, Config{}, func(_ any, s grpc.ServerStream) error {
		for r := range next {
			if err := s.SendMsg(answer(r)); err != nil {
				return err
			}
			if len(next) == 0 {
				return nil
			}
		}
		return nil
	})
	for _, step := range []struct {
		method string
		sends  []int64
		want   int64
	}{
		{"/etcdserverpb.KV/Range", []int64{7}, 7},
		{"/etcdserverpb.Watch/Watch", []int64{8, 12, 9}, 12},
		{"/etcdserverpb.Lease/LeaseGrant", []int64{10}, 12}, // this answer comes from another member, which is behind
		{"/v3lockpb.Lock/Lock", []int64{13}, 13},
		{"/someone.Else/Does", []int64{99}, 13},
		{"/etcdserverpb.Maintenance/Snapshot", []int64{14, 14}, 14},
	} {
		for _, r := range step.sends {
			next <- r
		}
		stream, err := c.NewStream(t.Context(), both, step.method)
		if err != nil {
			t.Fatal(err)
		}
		stream.SendMsg(&frame{})
		stream.CloseSend()
		for err == nil {
			err = stream.RecvMsg(&frame{})
		}
		if got := g.Newest().Revision(); got != step.want {
			t.Errorf("after %s with %v: %d, want %d", step.method, step.sends, got, step.want)
		}
	}
}

// FuzzRevisionOf checks that a message that is not etcd's has no revision and does no harm.
func FuzzRevisionOf(f *testing.F) {
	good, _ := (&pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 5}, Count: 3}).Marshal()
	f.Add(good)
	f.Add(good[:3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := revisionOf(b)
		var r pb.RangeResponse
		if r.Unmarshal(b) != nil {
			return
		}
		header, _ := field(b, headerField, protowire.BytesType)
		if count(b, headerField, protowire.BytesType) == 1 &&
			count(header, revisionField, protowire.VarintType) == 1 && got != r.GetHeader().GetRevision() {
			t.Errorf("%x: %d, want %d", b, got, r.GetHeader().GetRevision())
		}
	})
}

// count returns how often a field occurs in a message, or -1 if the message is malformed. (Protocol
// buffers merge a header that occurs twice. No server sends such a message.)
func count(b []byte, want protowire.Number, as protowire.Type) (n int) {
	for len(b) > 0 {
		num, typ, m := protowire.ConsumeField(b)
		if m < 0 {
			return -1
		}
		if num == want && typ == as {
			n++
		}
		b = b[m:]
	}
	return n
}

// TestShutdown checks that a stopping gateway ends streams as a stopping etcd does. Requests in
// progress may end, and new ones are refused.
func TestShutdown(t *testing.T) {
	there, proceed := make(chan struct{}, 2), make(chan struct{})
	c, g := upstreamed(t, Config{}, func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		s.SendHeader(nil)
		s.RecvMsg(&frame{})
		there <- struct{}{}
		if strings.HasSuffix(method, "Watch") {
			<-s.Context().Done()
			return s.Context().Err()
		}
		<-proceed
		return s.SendMsg(&frame{[]byte("late")})
	})
	open := func(method string) grpc.ClientStream {
		s, err := c.NewStream(t.Context(), both, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(&frame{}); err != nil {
			t.Fatal(err)
		}
		<-there
		return s
	}
	watch, get := open("/etcdserverpb.Watch/Watch"), open("/etcdserverpb.KV/Range")
	get.CloseSend()
	down := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.Shutdown(ctx)
		close(down)
	}()
	if err := watch.RecvMsg(&frame{}); status.Code(err) != codes.Unavailable ||
		rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped) {
		t.Errorf("the watch ended with %v, want etcd's %v", err, rpctypes.ErrGRPCStopped)
	}
	close(proceed)
	var f frame
	if err := get.RecvMsg(&f); err != nil || string(f.bytes) != "late" {
		t.Errorf("the request that was under way: %q, %v", f.bytes, err)
	}
	select {
	case <-down:
	case <-time.After(4 * time.Second):
		t.Error("not down although nothing is under way")
	}
	if err := c.Invoke(t.Context(), "/etcdserverpb.KV/Range", &frame{}, &frame{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// TestShutdownHanging checks that a hanging request does not delay the gateway's end beyond the
// timeout.
func TestShutdownHanging(t *testing.T) {
	there := make(chan struct{})
	c, g := upstreamed(t, Config{}, func(_ any, s grpc.ServerStream) error {
		close(there)
		<-s.Context().Done()
		return nil
	})
	s, err := c.NewStream(t.Context(), both, "/etcdserverpb.KV/Put")
	if err != nil {
		t.Fatal(err)
	}
	s.SendMsg(&frame{})
	s.CloseSend()
	<-there
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	g.Shutdown(ctx)
	if d := time.Since(began); d < 150*time.Millisecond || d > 3*time.Second {
		t.Errorf("it took %v, want 200 ms", d)
	}
}
