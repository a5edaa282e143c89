// Package p4proxy is a proxy between a P4Runtime controller and a switch. Tests use it to deliver
// messages late, in another order, or after the caller has given up. P4Runtime guarantees no order
// between a stream's packets and concurrent calls, and a call whose deadline has passed may still
// wait in the switch.
//
//	controller ── proxy ── switch
//
//	p, err := p4proxy.Start(p4proxy.Options{Target: "127.0.0.1:9559", P4Info: info})
//	held := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Hold: true})
//	... the controller, at p.Addr, does something ...
//	deliveries, err := held.Release(ctx)
//
// The proxy passes calls on unchanged, with their metadata. It parses only the parts that it needs
// to classify the calls. It answers a call after it has received the switch's complete answer.
package p4proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxMessage is the maximum size of a message in bytes. A message may contain a program, or a whole
// register.
const maxMessage = 256 << 20

// Options configure a proxy.
type Options struct {
	Target string           // host:port of the switch's P4Runtime server, in plain text
	P4Info *configv1.P4Info // source of the names in Message.Of; nil means no names
}

// Proxy is a proxy for one switch. It is safe for concurrent use.
type Proxy struct {
	Addr string // the proxy's own host:port

	names  names
	conn   *grpc.ClientConn
	server *grpc.Server
	ctx    context.Context // the context ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // waiting messages, and streams whose controller has left

	mu    sync.Mutex
	rules []*Caught
}

// Start starts a proxy on a loopback port.
func Start(o Options) (*Proxy, error) {
	conn, err := grpc.NewClient(o.Target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(8<<20), grpc.WithInitialConnWindowSize(16<<20),
		// Reconnect to a restarted switch quickly.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5,
				MaxDelay: 100 * time.Millisecond}}))
	if err != nil {
		return nil, fmt.Errorf("the P4Runtime address %q: %w", o.Target, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), names: namesOf(o.P4Info), conn: conn}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage), grpc.InitialWindowSize(8<<20), grpc.InitialConnWindowSize(16<<20),
		grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(p.handle))
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

// Close closes all connections. It does not deliver waiting messages.
func (p *Proxy) Close() {
	p.cancel()
	p.server.Stop()
	_ = p.conn.Close()
	p.work.Wait()
}

// raw is a codec that leaves messages unchanged.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

func (p *Proxy) handle(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if path.Base(method) == "StreamChannel" {
		return p.channel(method, down)
	}
	return p.call(method, down)
}

// passed returns a context for a call to the switch, with the caller's metadata.
func passed(ctx, caller context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(caller)
	return metadata.NewOutgoingContext(ctx, md)
}

// answer is the switch's answer to a call.
type answer struct {
	header, trailer metadata.MD
	messages        [][]byte
	err             error
}

// ask makes a call to the switch.
func (p *Proxy) ask(ctx context.Context, method string, request []byte) (a answer) {
	up, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return answer{err: err}
	}
	// If the switch has ended the call, RecvMsg returns the reason.
	if err := up.SendMsg(&request); err == nil {
		_ = up.CloseSend()
	} else if !errors.Is(err, io.EOF) {
		return answer{err: err}
	}
	for {
		var m []byte
		if a.err = up.RecvMsg(&m); a.err != nil {
			break
		}
		a.messages = append(a.messages, m)
	}
	if errors.Is(a.err, io.EOF) {
		a.err = nil
	}
	a.header, _ = up.Header()
	a.trailer = up.Trailer()
	return a
}

// givenUp returns gRPC's error for an exceeded deadline.
func givenUp() error { return status.FromContextError(context.DeadlineExceeded).Err() }

// call passes on a call with one request message.
func (p *Proxy) call(method string, down grpc.ServerStream) error {
	caller := down.Context()
	var request []byte
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	m, err := p.names.ofCall(method, request)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	var a answer
	if w := p.catch(m); w == nil {
		a = p.ask(passed(caller, caller), method, request)
	} else {
		// The call is delivered even if the caller leaves.
		done := make(chan answer, 1)
		p.work.Go(func() {
			if !w.wait(caller) {
				w.delivered(errClosed)
				return
			}
			a := p.ask(passed(p.ctx, caller), method, request)
			w.delivered(a.err)
			done <- a
		})
		if w.of.rule.GiveUp {
			return givenUp()
		}
		select {
		case a = <-done:
		case <-caller.Done():
			return status.FromContextError(caller.Err()).Err()
		case <-p.ctx.Done():
			return errClosed
		}
	}
	reply := *m
	reply.Reply = true
	if w := p.catch(&reply); w != nil {
		if w.of.rule.GiveUp {
			w.delivered(nil)
			return givenUp()
		}
		there := w.wait(caller)
		w.delivered(nil)
		if !there {
			return errClosed
		}
	}
	_ = down.SetHeader(a.header)
	down.SetTrailer(a.trailer)
	for _, m := range a.messages {
		if err := down.SendMsg(&m); err != nil {
			return err
		}
	}
	return a.err
}

var errClosed = status.Error(codes.Unavailable, "the proxy was closed")

// end is one end of a stream, which accepts one message at a time.
type end struct {
	mu     sync.Mutex
	closed bool
	send   func(any) error
}

var errGone = errors.New("the other end of the stream has gone")

func (e *end) deliver(m []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errGone
	}
	return e.send(&m)
}

// channel passes on a StreamChannel. When the controller leaves, the switch still gets the waiting
// messages on the same stream. Then the stream ends.
func (p *Proxy) channel(method string, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(passed(p.ctx, down.Context()))
	up, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		return err
	}
	toController, toSwitch := &end{send: down.SendMsg}, &end{send: up.SendMsg}
	defer func() { // gRPC forbids SendMsg after the handler has returned
		toController.mu.Lock()
		defer toController.mu.Unlock()
		toController.closed = true
	}()
	var waits sync.WaitGroup // counts the switch's waiting messages
	pass := func(from func(any) error, to *end, out bool) error {
		for {
			var b []byte
			if err := from(&b); err != nil {
				return err
			}
			m, err := ofStream(b, out)
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			w := p.catch(m)
			if w == nil {
				_ = to.deliver(b) // RecvMsg reports the end of a stream
				continue
			}
			if out {
				waits.Add(1)
			}
			p.work.Go(func() {
				if out {
					defer waits.Done()
				}
				if !w.wait(down.Context()) {
					w.delivered(errClosed)
					return
				}
				w.delivered(to.deliver(b))
			})
		}
	}
	controllerEnded, switchEnded := make(chan error, 1), make(chan error, 1)
	p.work.Go(func() { controllerEnded <- pass(down.RecvMsg, toSwitch, true) })
	p.work.Go(func() { switchEnded <- pass(up.RecvMsg, toController, false) })
	select {
	case err := <-switchEnded:
		cancel()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case err := <-controllerEnded:
		p.work.Go(func() {
			waits.Wait()
			cancel()
		})
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-p.ctx.Done():
		cancel()
		return errClosed
	}
}
