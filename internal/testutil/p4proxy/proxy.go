// Package p4proxy is a proxy between a P4Runtime controller and a switch. Tests use it to deliver
// messages late, in another order, or after the caller has given up: P4Runtime promises no order
// between the packets of a stream and the calls alongside it, and a call whose deadline has passed
// may still wait in the switch.
//
//	controller ── proxy ── switch
//
//	p, err := p4proxy.Start(p4proxy.Options{Target: "127.0.0.1:9559", P4Info: info})
//	held := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Hold: true})
//	... the controller, at p.Addr, does something ...
//	deliveries, err := held.Release(ctx)
//
// The proxy passes calls on as they are, with their metadata. It reads only what it needs to tell
// them apart. It answers a call after the switch has given its whole answer.
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

// maxMessage is the largest message that passes: a program, or a register as a whole.
const maxMessage = 256 << 20

// Options say what the proxy stands before.
type Options struct {
	Target string           // host:port of the switch's P4Runtime server, which speaks plain text
	P4Info *configv1.P4Info // names what Writes and Reads are about (Message.Of); nil: nothing is named
}

// Proxy is a proxy before one switch. It is safe for concurrent use.
type Proxy struct {
	Addr string // host:port where it listens

	names  names
	conn   *grpc.ClientConn
	server *grpc.Server
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // what waits, and streams whose controller has gone

	mu    sync.Mutex
	rules []*Caught
}

// Start starts a proxy on a loopback port.
func Start(o Options) (*Proxy, error) {
	conn, err := grpc.NewClient(o.Target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(8<<20), grpc.WithInitialConnWindowSize(16<<20),
		// A switch that was started again is there at once.
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

// Close ends all connections. What waits is no longer delivered.
func (p *Proxy) Close() {
	p.cancel()
	p.server.Stop()
	_ = p.conn.Close()
	p.work.Wait()
}

// raw is a codec that leaves messages as they are.
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

// passed is a context for what is passed on: it has the caller's metadata.
func passed(ctx, caller context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(caller)
	return metadata.NewOutgoingContext(ctx, md)
}

// answer is what the switch has answered to a call.
type answer struct {
	header, trailer metadata.MD
	messages        [][]byte
	err             error
}

// ask makes a call at the switch.
func (p *Proxy) ask(ctx context.Context, method string, request []byte) (a answer) {
	up, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return answer{err: err}
	}
	// Where the switch has ended the call, RecvMsg says why.
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

// givenUp is what gRPC answers where a deadline passes.
func givenUp() error { return status.FromContextError(context.DeadlineExceeded).Err() }

// call passes on a call with one request.
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
		// Whether the caller is still there makes no difference to what happens to it.
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

// end is one end of a stream, which takes one message at a time.
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

// channel passes on a StreamChannel. When its controller goes, the switch still gets what waits, on
// the same stream; that ends then.
func (p *Proxy) channel(method string, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(passed(p.ctx, down.Context()))
	up, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		return err
	}
	toController, toSwitch := &end{send: down.SendMsg}, &end{send: up.SendMsg}
	defer func() { // gRPC allows no SendMsg after the handler has returned
		toController.mu.Lock()
		defer toController.mu.Unlock()
		toController.closed = true
	}()
	var waits sync.WaitGroup // of the switch's messages
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
				_ = to.deliver(b) // that an end has gone shows in its RecvMsg
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
