package p4rt

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// This file determines the outcome of requests that change the switch: Write and
// SetForwardingPipelineConfig.
//
// If the switch itself answers, the answer is final: all effects of the request have happened, and
// there will be no more. In every other case the outcome is open. A deadline, a cancelled call or a
// lost connection ends the call here. But the request may still be in a buffer on its way, or wait
// at the switch, and be executed after requests that were sent later. So the client ends the stream
// after such a request. The next stream has a higher election id, and a switch executes nothing
// under an earlier one once it has answered the arbitration. Then the client can read the switch's
// content, which no longer changes.
//
// A request belongs to the stream under whose election id it is sent. When the stream ends, for
// whatever reason, requests that are under way end with it, and their outcome is unknown.

// stream is one stream to the switch, with its own election id.
type stream struct {
	v1.P4Runtime_StreamChannelClient
	number   int // number of the stream (State.Stream)
	election ElectionID
	ctx      context.Context // the context ends with the stream
	end      context.CancelCauseFunc
}

// Reconnect ends a stream (State.Stream), unless another stream has replaced it. The client then
// opens the next stream, with a higher election id. Until then, State.Err is why.
func (c *Client) Reconnect(stream int, why error) {
	c.mu.Lock()
	st := c.stream
	c.mu.Unlock()
	if st != nil && st.number == stream {
		st.end(why)
	}
}

// anyStream stands for the present stream, whatever its number.
const anyStream = -1

// primaryStream returns the stream with a number, if it exists and this controller is primary in
// it.
func (c *Client) primaryStream(number int) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stream
	switch {
	case st == nil:
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, reasonOr(c.state.Err))
	case st.ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(st.ctx))
	case number != anyStream && st.number != number:
		return nil, fmt.Errorf("%w any longer by the stream that this was for", ErrNotConnected)
	case c.state.Phase != Primary:
		return nil, ErrNotPrimary
	}
	return st, nil
}

// change makes a request that changes the switch, under a stream's election id. It returns the
// switch's own answer if there is one. Otherwise its error wraps ErrNotConnected if the stream had
// ended before the request, or ErrOutcomeUnknown.
func (c *Client) change(ctx context.Context, st *stream, request func(context.Context) error) error {
	if st.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(st.ctx))
	}
	if err := ctx.Err(); err != nil {
		return err // nothing was sent
	}
	ctx, cancel := c.rpcContext(ctx)
	defer cancel()
	defer context.AfterFunc(st.ctx, cancel)()
	err := request(ctx)
	if over := context.Cause(st.ctx); over != nil {
		// Even an answer proves nothing now, because the switch may execute the request after the
		// event that ended the stream.
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, over)
	}
	if isAnswer(err) {
		return err
	}
	err = fmt.Errorf("%w (%w)", ErrOutcomeUnknown, err)
	st.end(fmt.Errorf("the stream was ended for a request to %s: %w", c.o.Name, err))
	return err
}

// isAnswer reports whether the error of a request is the switch's own answer to it. It accepts the
// codes with which a P4Runtime server refuses a whole request (sections 12 and 14), and which
// nothing on the path to the server produces by accident. UNKNOWN without errors of single updates
// is not such a code, because gRPC uses it for errors that it does not understand. ABORTED is not
// one either, because it only says that something else came in between. Nor is RESOURCE_EXHAUSTED,
// with which HTTP/2 may end a call that is under way.
func isAnswer(err error) bool {
	var we *WriteError
	if err == nil || errors.As(err, &we) {
		return true
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	}
	return false
}

// later waits for a stream that follows the ended stream `after`, and in which this controller is
// primary.
func (c *Client) later(ctx context.Context, after *stream) (*stream, error) {
	ctx, cancel := c.rpcContext(ctx)
	defer cancel()
	for {
		st, err := c.primaryStream(anyStream)
		if err == nil && st.number > after.number {
			return st, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(c.o.MinBackoff):
		}
	}
}

// Write sends updates, in order, in as many requests as BatchSize requires, all under the election
// id of the stream at its beginning. A switch continues after an update that fails
// (CONTINUE_ON_ERROR). If updates fail, Write returns a *WriteError, which lists them. Any other
// error concerns a whole request. The updates of earlier requests took effect. Updates of later
// requests were not sent. Updates of the failed request had no effect, unless the error wraps
// ErrOutcomeUnknown.
func (c *Client) Write(ctx context.Context, updates ...*v1.Update) error {
	return c.WriteIn(ctx, anyStream, updates...)
}

// WriteIn does the same as Write, under a given stream (State.Stream). It returns ErrNotConnected
// if that stream has ended. If a caller's writes depend on content that it has read, it passes the
// stream in which it has read, because the switch may be replaced between two streams.
func (c *Client) WriteIn(ctx context.Context, stream int, updates ...*v1.Update) error {
	fail := func(err error) error { return fmt.Errorf("writing to %s: %w", c.o.Name, err) }
	st, err := c.primaryStream(stream)
	if err != nil {
		return fail(err)
	}
	var failed *WriteError
	for start := 0; start < len(updates); start += c.o.BatchSize {
		batch := updates[start:min(start+c.o.BatchSize, len(updates))]
		err := c.writeBatch(ctx, st, batch)
		var we *WriteError
		switch {
		case err == nil:
		case errors.As(err, &we):
			if failed == nil {
				failed = &WriteError{Switch: c.o.Name, Total: len(updates), info: c.o.Info}
			}
			for _, u := range we.Updates {
				u.Index += start
				failed.Updates = append(failed.Updates, u)
			}
		default:
			return fail(err)
		}
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (c *Client) writeBatch(ctx context.Context, st *stream, batch []*v1.Update) error {
	return c.change(ctx, st, func(ctx context.Context) error {
		_, err := c.rpc.Write(ctx, &v1.WriteRequest{DeviceId: c.o.DeviceID, ElectionId: st.election.proto(),
			Updates: batch})
		if err != nil {
			err = unpackWriteError(c.o.Info, c.o.Name, batch, err)
		}
		return notPrimary(err)
	})
}

// notPrimary returns ErrNotPrimary if the switch refused a request because this controller is not
// primary.
func notPrimary(err error) error {
	var we *WriteError
	if !errors.As(err, &we) && status.Code(err) == codes.PermissionDenied {
		return fmt.Errorf("%w: %w", ErrNotPrimary, err)
	}
	return err
}
