package gateway

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// This file is the transparent proxy. The existing Go modules for this purpose are from 2018, and
// use a codec interface that gRPC has replaced.

// methods has the known methods of etcd, as /SERVICE/METHOD. The value reports whether the method
// streams. The gateway forwards other methods as streams, which works for single requests, too.
var methods = func() map[string]bool {
	s := grpc.NewServer()
	pb.RegisterKVServer(s, nil)
	pb.RegisterWatchServer(s, nil)
	pb.RegisterLeaseServer(s, nil)
	pb.RegisterClusterServer(s, nil)
	pb.RegisterMaintenanceServer(s, nil)
	pb.RegisterAuthServer(s, nil)
	v3lockpb.RegisterLockServer(s, nil)
	v3electionpb.RegisterElectionServer(s, nil)
	out := map[string]bool{}
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			out["/"+service+"/"+m.Name] = m.IsClientStream || m.IsServerStream
		}
	}
	return out
}()

// pass forwards a call of a method that this process does not serve.
func (g *Gateway) pass(_ any, down grpc.ServerStream) (err error) {
	method, _ := grpc.MethodFromServerStream(down)
	streams, known := methods[method]
	if known && !streams {
		return g.passOne(method, down)
	}
	kind := "other"
	if known {
		kind = path.Base(method)
	}
	defer func() { g.metrics.Request(kind, status.Code(err).String()) }()
	if own := g.reserved.Prefixes(); method == snapshotMethod && len(own) > 0 {
		return status.Errorf(codes.PermissionDenied, "etcd-monitor: a snapshot has the keys under %s, which are NetCRAQ's own: ask etcd itself for it", strings.Join(own, ", "))
	}
	switch method {
	case watchMethod:
		return g.watches(down)
	case keepAliveMethod:
		return g.keepAlives(down)
	}
	return g.passStream(method, down)
}

// passOne forwards a single request to etcd.
func (g *Gateway) passOne(method string, down grpc.ServerStream) (err error) {
	kind := path.Base(method)
	defer func() { g.metrics.Request(kind, status.Code(err).String()) }()
	var request, answer frame
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	var at aim
	kind, at = g.look(method, request.bytes)
	serving, end := g.whileServing(down.Context())
	defer end()
	if answers := leaseMethods[method]; answers != nil && len(g.reserved.Prefixes()) > 0 {
		if a, err := answers(g, serving, request.bytes); err != nil || a != nil {
			if err != nil {
				return g.unlessStopped(err)
			}
			return down.SendMsg(a)
		}
	}
	ctx := outgoing(serving)
	var header, trailer metadata.MD
	invoke := func(ctx context.Context) error {
		defer func(began time.Time) { g.metrics.Etcd(kind, time.Since(began)) }(time.Now())
		return g.upstream.Conn().Invoke(ctx, method, &request, &answer, grpc.ForceCodecV2(g.codec),
			grpc.Header(&header), grpc.Trailer(&trailer))
	}
	switch {
	case method == authEnableMethod && g.enabling != nil:
		err = g.enabling(ctx, func() error { return invoke(ctx) })
	case at.to == aWrite:
		err = g.upstream.write(ctx, g.metrics, invoke)
	case at.to == aRead:
		err = g.upstream.read(ctx, g.metrics, invoke)
	default:
		err = invoke(ctx)
	}
	down.SetTrailer(own(trailer))
	if err != nil {
		return g.unlessStopped(err)
	}
	g.upstream.sizes.answered(at, len(answer.bytes))
	if ofEtcd(method) {
		g.newest.Saw(revisionOf(answer.bytes))
	}
	if change := g.changed[method]; change != nil {
		if answer.bytes, err = change(serving, answer.bytes); err != nil {
			return g.unlessStopped(err)
		}
	}
	if err := down.SetHeader(own(header)); err != nil {
		return err
	}
	return down.SendMsg(&answer)
}

// stream starts a call of one of etcd's bidirectional streaming methods.
func (g *Gateway) stream(ctx context.Context, method string) (grpc.ClientStream, error) {
	return g.upstream.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(g.codec))
}

// passStream forwards messages in both directions. It ends when etcd or the client ends the stream,
// or when the gateway is stopped.
func (g *Gateway) passStream(method string, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(outgoing(down.Context()))
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	up, err := g.stream(ctx, method)
	if err != nil {
		return g.unlessStopped(err)
	}
	go func() {
		// This loop forwards the client's messages. It ends no later than the handler's stream. The
		// receiving side reports the errors of sending to etcd.
		for {
			var request frame
			err := down.RecvMsg(&request)
			if errors.Is(err, io.EOF) {
				up.CloseSend()
				return
			}
			if err != nil {
				cancel()
				return
			}
			if up.SendMsg(&request) != nil {
				return
			}
		}
	}()
	// A watch's header arrives long before the first answer, and clients wait for the header.
	header, err := up.Header()
	if err == nil && header != nil {
		if err := down.SendHeader(own(header)); err != nil {
			return err
		}
	}
	for {
		var answer frame
		if err := up.RecvMsg(&answer); err != nil {
			down.SetTrailer(own(up.Trailer()))
			if errors.Is(err, io.EOF) {
				return nil
			}
			return g.unlessStopped(err)
		}
		if ofEtcd(method) {
			g.newest.Saw(revisionOf(answer.bytes))
		}
		if err := down.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// The streaming methods whose messages contain keys.
const (
	watchMethod    = "/etcdserverpb.Watch/Watch"
	snapshotMethod = "/etcdserverpb.Maintenance/Snapshot"
)

const authEnableMethod = "/etcdserverpb.Auth/AuthEnable"

// whileServing returns a context for a request. It ends if the gateway is stopped while the request
// waits for a connection to etcd. A request that was already sent may still get its answer.
func (g *Gateway) whileServing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.stopping, func() {
		if !g.upstream.reachable() {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// unlessStopped returns the error for the client. If the gateway is stopping, this is the error of
// a stopping etcd, so that clients use another server.
func (g *Gateway) unlessStopped(err error) error {
	if g.stopping.Err() != nil && (status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)) {
		return rpctypes.ErrGRPCStopped
	}
	return err
}

// own removes from etcd's metadata the entries that concern only the connection to etcd.
func own(md metadata.MD) metadata.MD {
	for k := range md {
		if hopByHop(k) {
			delete(md, k)
		}
	}
	return md
}
