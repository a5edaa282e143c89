package p4rt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
)

// holding is a server that can hold back requests, with a client that is primary.
type holding struct {
	*p4rttest.Server
	client *p4rt.Client
	mu     sync.Mutex
	asked  func() error // called for each request, like the server's Hold
}

// hold makes the server hold back requests from now on. Their callers get this answer. If it is
// nil, the server holds back no requests.
func (h *holding) hold(answer error) { h.ask(func() error { return answer }) }

func (h *holding) ask(f func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = f
}

func newHolding(t *testing.T, timeout time.Duration) *holding {
	t.Helper()
	h := &holding{Server: &p4rttest.Server{}}
	h.hold(nil)
	h.Hold = func(any) error {
		h.mu.Lock()
		f := h.asked
		h.mu.Unlock()
		return f()
	}
	start(t, h.Server)
	var f follower
	var err error
	h.client, err = p4rt.New(p4rt.Options{
		Name: "s1", Target: h.Addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 10}, Info: pipeline(t, "{}").Info,
		MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, BatchSize: 3, RPCTimeout: timeout,
	}, f.handler())
	if err != nil {
		t.Fatal(err)
	}
	runClient(t, h.client)
	h.wait(t, 1)
	if err := h.client.Reload(t.Context(), pipeline(t, "{}")); err != nil {
		t.Fatal(err)
	}
	return h
}

// wait waits until the client is primary in the stream with this number.
func (h *holding) wait(t *testing.T, stream int) {
	t.Helper()
	wait(t, fmt.Sprintf("the client is primary in its stream %d", stream), func() bool {
		return primary(h.client)() && h.client.State().Stream == stream
	})
}

func insertOf(t *testing.T, c *p4rt.Client, addr string, port uint32) *v1.Update {
	t.Helper()
	return p4rt.Insert(p4rt.EntryEntity(encode(t, c, route(addr, 32, port))))
}

// TestLateWrite: a request that the caller has abandoned has no effect if it arrives after later
// requests.
func TestLateWrite(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  error
		timeout time.Duration
		cancel  time.Duration // time after which the caller abandons the request; 0: never
	}{
		{"the deadline has passed", p4rttest.ErrSilent, 50 * time.Millisecond, 0},
		{"the caller has given up", p4rttest.ErrSilent, time.Minute, 50 * time.Millisecond},
		{"unavailable", status.Error(codes.Unavailable, "the connection was lost"), time.Minute, 0},
		{"internal", status.Error(codes.Internal, "RST_STREAM"), time.Minute, 0},
		{"unknown, without the updates' own errors", status.Error(codes.Unknown, "HTTP status 500"), time.Minute, 0},
		{"aborted", status.Error(codes.Aborted, "try again"), time.Minute, 0},
		{"resource exhausted", status.Error(codes.ResourceExhausted, "ENHANCE_YOUR_CALM"), time.Minute, 0},
	} {
		for kind, request := range map[string]func(context.Context, *p4rt.Client) error{
			"Write": func(ctx context.Context, c *p4rt.Client) error {
				return c.Write(ctx, insertOf(t, c, "10.0.0.1", 1))
			},
			"SetForwardingPipelineConfig": func(ctx context.Context, c *p4rt.Client) error {
				return c.Reload(ctx, pipeline(t, `{"late":1}`))
			},
		} {
			t.Run(kind+", "+c.name, func(t *testing.T) {
				h := newHolding(t, c.timeout)
				ctx := t.Context()
				if c.cancel > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.cancel)
					defer cancel()
				}
				h.hold(c.answer)
				if err := request(ctx, h.client); !errors.Is(err, p4rt.ErrOutcomeUnknown) {
					t.Fatalf("the request: %v, want an unknown outcome", err)
				}
				// Writes succeed only after the next stream has begun.
				h.hold(nil)
				err := h.client.WriteIn(t.Context(), 1, insertOf(t, h.client, "10.0.0.2", 2))
				if !errors.Is(err, p4rt.ErrNotConnected) {
					t.Errorf("a write in the same stream: %v, want that there is none", err)
				}
				h.wait(t, 2)
				if err := h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.2", 2)); err != nil {
					t.Fatal(err)
				}
				if answers := h.Deliver(); len(answers) != 1 || status.Code(answers[0]) != codes.PermissionDenied {
					t.Errorf("what arrived late was answered %v", answers)
				}
				if n := len(h.Entries()); n != 1 || string(h.DeviceConfig()) != "{}" {
					t.Errorf("what arrived late took effect: %d entries, program %s", n, h.DeviceConfig())
				}
			})
		}
	}
}

// TestAnswersAreFinal: no answer of the switch itself ends the stream, not even an error.
func TestAnswersAreFinal(t *testing.T) {
	h := newHolding(t, time.Minute)
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists,
		codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented,
		codes.Unauthenticated} {
		h.hold(status.Error(code, "no"))
		for _, err := range []error{h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.1", 1)),
			h.client.Reload(t.Context(), pipeline(t, "{}"))} {
			if status.Code(err) != code || errors.Is(err, p4rt.ErrOutcomeUnknown) ||
				errors.Is(err, p4rt.ErrNotPrimary) != (code == codes.PermissionDenied) {
				t.Errorf("%v: %v", code, err)
			}
		}
	}
	h.hold(nil)
	insertRoute(t, h.client, "10.0.0.1", 32, 1)
	err := h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.1", 1)) // the entry exists already
	var we *p4rt.WriteError
	if !errors.As(err, &we) || we.Code() != codes.AlreadyExists {
		t.Errorf("an update that failed: %v", err)
	}
	if s := h.client.State(); s.Phase != p4rt.Primary || s.Stream != 1 {
		t.Errorf("%+v: want the first stream", s)
	}
	h.hold(p4rttest.ErrSilent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.client.Write(ctx, insertOf(t, h.client, "10.0.0.2", 1)); !errors.Is(err, context.Canceled) ||
		errors.Is(err, p4rt.ErrOutcomeUnknown) || h.Held() != 16 {
		t.Errorf("a write whose caller has gone before: %v, %d requests were put aside", err, h.Held())
	}
}

// TestOthersUnderWay: if one request has an unknown outcome, other requests that are under way
// fail, too.
func TestOthersUnderWay(t *testing.T) {
	h := newHolding(t, time.Minute)
	h.hold(p4rttest.ErrSilent)
	failed := make(chan error, 2)
	go func() { failed <- h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.1", 1)) }()
	wait(t, "the first is under way", func() bool { return h.Held() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	go func() { failed <- h.client.Write(ctx, insertOf(t, h.client, "10.0.0.2", 2)) }()
	for range 2 {
		if err := <-failed; !errors.Is(err, p4rt.ErrOutcomeUnknown) {
			t.Errorf("%v, want an unknown outcome", err)
		}
	}
	h.wait(t, 2)
	// Requests that are under way fail when the stream breaks, and when Reconnect ends it.
	for i, end := range []func(stream int){
		func(int) { h.BreakStreams() },
		func(stream int) { h.client.Reconnect(stream, errors.New("the test says so")) },
	} {
		stream := 2 + i
		h.wait(t, stream)
		held := h.Held()
		go func() { failed <- h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.3", 3)) }()
		wait(t, "another is under way", func() bool { return h.Held() == held+1 })
		h.client.Reconnect(stream-1, errors.New("it is over anyway")) // does nothing, because that stream is over
		end(stream)
		if err := <-failed; !errors.Is(err, p4rt.ErrOutcomeUnknown) {
			t.Errorf("%v, want an unknown outcome", err)
		}
	}
	h.wait(t, 4)
	h.Deliver()
	if n := len(h.Entries()); n != 0 {
		t.Errorf("%d of them took effect late", n)
	}
}

// TestBatchesOfOneStream: all requests of one Write carry the election id of the first request.
func TestBatchesOfOneStream(t *testing.T) {
	h := newHolding(t, time.Minute)
	var updates []*v1.Update
	for n := 1; n <= 7; n++ {
		updates = append(updates, insertOf(t, h.client, fmt.Sprintf("10.0.0.%d", n), uint32(n)))
	}
	n, next := 0, make(chan struct{})
	answered := make(chan struct{})
	h.ask(func() error {
		if n++; n == 2 { // the stream is replaced between two batches
			h.BreakStreams()
			<-next
			defer close(answered)
		}
		return nil
	})
	if err := h.client.Write(t.Context(), updates...); !errors.Is(err, p4rt.ErrOutcomeUnknown) {
		t.Errorf("%v, want an unknown outcome", err)
	}
	h.wait(t, 2)
	close(next)
	<-answered
	if got := h.Batches(); !slices.Equal(got, []int{3}) {
		t.Errorf("batches of %v updates were taken, want the first one alone", got)
	}
}

// TestUnknownAgainAndAgain: if a switch answers every request with an inconclusive error, the
// client does not open streams faster and faster.
func TestUnknownAgainAndAgain(t *testing.T) {
	h := newHolding(t, time.Minute)
	h.hold(status.Error(codes.Internal, "no"))
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; time.Sleep(time.Millisecond / 2) {
		_ = h.client.Write(t.Context(), insertOf(t, h.client, "10.0.0.1", 1))
	}
	if n := h.client.State().Stream; n < 3 || n > 40 {
		t.Errorf("%d streams in 200 ms, with 10 ms between them", n)
	}
}
