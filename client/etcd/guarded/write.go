package guarded

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// errAgain means that nothing was executed, and the write must be planned again.
var errAgain = errors.New("to be tried again")

// write executes a write, and returns etcd's answer to the client's operation, and the answer's
// header. The client's context bounds only how long the client waits. The write completes even if
// the client cancels.
func (s *Server) write(ctx context.Context, w *work) (*pb.ResponseOp, *pb.ResponseHeader, error) {
	if len(w.spans) == 0 {
		// A malformed request is sent to etcd, which reports what is wrong with it.
		w.spans = []span{{}}
	}
	var answer *pb.ResponseOp
	var header *pb.ResponseHeader
	var err error
	done := make(chan struct{})
	s.Runtime.Go(func() {
		ctx, cancel := s.Runtime.Within(ctx)
		defer cancel()
		patient := ctx
		if s.Patience > 0 {
			var stop context.CancelFunc
			patient, stop = context.WithTimeoutCause(ctx, s.Patience, errPatience)
			defer stop()
		}
		answer, header, err = s.try(patient, ctx, w)
		close(done)
		if w.rest != nil {
			w.rest()
		}
	})
	if !s.Runtime.Wait(ctx, done, 0) {
		if ctx.Err() == nil {
			return nil, nil, s.unknown()
		}
		return nil, nil, over(ctx)
	}
	return answer, header, err
}

// try repeats a write until etcd has executed or refused it. ctx bounds how long it tries. The
// client's context bounds the wait for etcd, if no other write waits for this one.
func (s *Server) try(ctx, client context.Context, w *work) (*pb.ResponseOp, *pb.ResponseHeader, error) {
	pause, ended := newPause(), pause(endedShortest)
	for {
		changed := s.Directory.Changed()
		answer, header, err := s.once(ctx, client, w)
		switch {
		case err == nil:
			return answer, header, nil
		case isGone(err):
			// The placement is being ended. The directory will show that, but perhaps late, because
			// the process that was ending it may have died.
			s.Runtime.Wait(ctx, changed, ended.next(s.Runtime, endedLongest))
			s.refresh(ctx)
		case errors.Is(err, errAgain):
			if err := s.refresh(ctx); err != nil {
				s.Runtime.Wait(ctx, nil, pause.next(s.Runtime, longest))
			}
		default:
			return nil, nil, err
		}
		if ctx.Err() != nil {
			return nil, nil, over(ctx)
		}
	}
}

func (s *Server) refresh(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Directory.Refresh(ctx)
}

// once plans a write according to the known directory, guards the placed keys, and makes etcd
// execute the write.
func (s *Server) once(ctx, client context.Context, w *work) (*pb.ResponseOp, *pb.ResponseHeader, error) {
	// Revision is called before the directory is searched, so that all changes up to the revision
	// are known.
	known := s.Directory.Revision()
	keys := s.placedIn(w)
	t := &transaction{work: w, known: known}
	if len(keys) == 0 {
		out, err := s.commit(client, t)
		if err == nil && out.again {
			err = errAgain
		}
		return out.answer, out.header, err
	}

	lease, err := s.Sessions.Current(ctx)
	if err != nil {
		return nil, nil, s.unavailable(ctx, "this gateway has no session in etcd", err)
	}
	t.lease = lease
	held, err := s.takeAll(ctx, lease, keys)
	if err == nil && ctx.Err() != nil {
		err = over(ctx)
	}
	if err != nil {
		s.finishGuards(ctx, held, s.release)
		return nil, nil, err
	}
	t.guards = held
	return s.guarded(ctx, t)
}

// guarded makes etcd execute a write whose keys are guarded, and publishes the result.
func (s *Server) guarded(ctx context.Context, t *transaction) (*pb.ResponseOp, *pb.ResponseHeader, error) {
	// If the client stops waiting, the write's outcome must not become unknown.
	detached, cancel := s.Runtime.Detach(ctx)
	defer cancel()
	// If etcd checks identities, it would refuse this read to callers that may only write.
	t.read = s.Open()
	out, err := s.commit(detached, t)
	switch {
	case err != nil && !etcderrors.Definite(err):
		s.Observer.GuardedWrite("unknown")
		s.Sessions.GiveUp(t.lease)
		s.orphan(ctx, t.guards)
		return nil, nil, err
	case err != nil:
		s.Observer.GuardedWrite("refused")
		// The previous content is probably still correct, but a list of error codes does not prove
		// it. So the slot becomes clear, and a reader will populate it.
		for _, g := range t.guards {
			g.before = []byte{byte(slotcodec.Clear)}
		}
		s.finishGuards(ctx, t.guards, s.release)
		return nil, nil, err
	case out.again:
		s.Observer.GuardedWrite("again")
		s.finishGuards(ctx, t.guards, s.release)
		if out.sessionGone {
			s.Sessions.GiveUp(t.lease)
		}
		return nil, nil, errAgain
	}
	s.Observer.GuardedWrite("done")
	for i, g := range t.guards {
		g.after = []byte{byte(slotcodec.Clear)}
		if out.read != nil {
			kv := only(out.read[i].GetResponseRange().GetKvs())
			g.after = s.encode(s.cellOf(kv, out.header.Revision), s.Slots.Size(wire.Key(g.key.ID)))
		}
	}
	// The slots stay unreadable until they are published. So no one can observe the delay, and the
	// client need not wait.
	t.work.rest = func() { s.publishAll(ctx, t.guards) }
	return out.answer, out.header, nil
}

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// countOf returns a request that asks whether a key exists.
func countOf(key string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(key), CountOnly: true}
}

// unavailable returns the client's error for a write that cannot be executed now.
func (s *Server) unavailable(ctx context.Context, what string, why error) error {
	if ctx.Err() != nil {
		return over(ctx)
	}
	return status.Errorf(codes.Unavailable, "etcd-monitor: %s, so keys that are in the network cannot be written: %v", what, why)
}

// unknown returns the client's error if the gateway is closed while the write is under way.
func (s *Server) unknown() error {
	return status.Errorf(codes.Unavailable, "etcd-monitor: %v; the write may or may not have happened: read the key before you retry", errClosed)
}
