package p4rtserver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

// Tests of calls whose caller has disconnected, or is not primary any more, when the server
// executes them.

// watchedDevice and watchedPipeline call functions of the test during certain operations.
type watchedDevice struct {
	target.Device
	verifying, committing func()
	commits               int
}

func (d *watchedDevice) Verify(p *bmv2json.Program) error {
	d.verifying()
	return d.Device.Verify(p)
}

func (d *watchedDevice) Commit(p *bmv2json.Program) error {
	d.commits++
	d.committing()
	return d.Device.Commit(p)
}

type watchedPipeline struct {
	target.Pipeline
	writing  func(index int)
	written  []int // indices of the register cells that were written
	barriers int
	barrier  error
}

func (p *watchedPipeline) WriteRegister(name string, index int, value []byte) error {
	p.writing(index)
	p.written = append(p.written, index)
	return p.Pipeline.WriteRegister(name, index, value)
}

func (p *watchedPipeline) Barrier() error {
	p.barriers++
	return errors.Join(p.barrier, p.Pipeline.Barrier())
}

// watchedServer is a server with a controller that is primary with election id 1.
type watchedServer struct {
	*world
	*Server
	t    *testing.T
	dev  *watchedDevice
	pipe *watchedPipeline
}

func newWatchedServer(t *testing.T) *watchedServer {
	t.Helper()
	dev, err := userspace.New(userspace.Options{CPUPort: 255, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	nothing := func() {}
	w := &watchedServer{world: newWorld(t, "testdata/entities"), t: t,
		dev: &watchedDevice{Device: dev, verifying: nothing, committing: nothing}}
	w.Server = New(w.dev, Options{DeviceID: 1, Log: slog.New(slog.DiscardHandler)})
	w.arbitrate(1)
	if err := w.load(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.pipe = &watchedPipeline{Pipeline: w.live.pipe, writing: func(int) {}}
	w.live.pipe = w.pipe
	return w
}

func (w *watchedServer) arbitrate(election uint64) {
	w.t.Helper()
	if err := w.arb.update(newStream(), &p4v1.MasterArbitrationUpdate{DeviceId: 1,
		ElectionId: &p4v1.Uint128{Low: election}}, w.drain); err != nil {
		w.t.Error(err)
	}
}

func (w *watchedServer) load(ctx context.Context, election uint64) error {
	_, err := w.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: 1, ElectionId: &p4v1.Uint128{Low: election},
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.world.program}})
	return err
}

// set writes cells of a register in one Write, with one update per cell.
func (w *watchedServer) set(ctx context.Context, election uint64, cells ...int64) error {
	req := &p4v1.WriteRequest{DeviceId: 1, ElectionId: &p4v1.Uint128{Low: election}}
	for _, i := range cells {
		req.Updates = append(req.Updates, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: &p4v1.Entity{
			Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{
				RegisterId: w.ids["last_len"], Index: &p4v1.Index{Index: i},
				Data: &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: []byte{1}}}}}}})
	}
	_, err := w.Write(ctx, req)
	return err
}

func (w *watchedServer) wrote(cells ...int) {
	w.t.Helper()
	if !slices.Equal(w.pipe.written, cells) {
		w.t.Errorf("the cells %v were written, want %v", w.pipe.written, cells)
	}
}

// TestCallerGone checks that the server does not execute a request if the caller disconnects while
// the request waits for the lock. A batch must stop between two updates.
func TestCallerGone(t *testing.T) {
	w := newWatchedServer(t)
	for code, end := range map[codes.Code]func() (context.Context, context.CancelFunc){
		codes.Canceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		codes.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Millisecond)
		},
	} {
		ctx, cancel := end()
		w.state.Lock()
		answers := make(chan error, 2)
		go func() { answers <- w.set(ctx, 1, 0) }()
		go func() { answers <- w.load(ctx, 1) }()
		if code == codes.Canceled {
			cancel()
		}
		<-ctx.Done()
		w.state.Unlock()
		for range 2 {
			if err := <-answers; status.Code(err) != code || len(status.Convert(err).Details()) != 0 {
				t.Errorf("a call whose caller has gone while it waited: %v, want %v", err, code)
			}
		}
		cancel()
	}
	w.wrote()
	if w.dev.commits != 1 {
		t.Errorf("%d programs were committed, want the first alone", w.dev.commits)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.pipe.writing = func(index int) {
		if index == 1 {
			cancel()
		}
	}
	before := w.pipe.barriers
	err := w.set(ctx, 1, 0, 1, 2, 3)
	if status.Code(err) != codes.Canceled || len(status.Convert(err).Details()) != 0 {
		t.Errorf("a batch whose caller goes away: %v", err)
	}
	w.wrote(0, 1)
	if w.pipe.barriers == before {
		t.Error("what was made of it does not count for every packet")
	}
	if err := w.set(t.Context(), 1, 2); err != nil {
		t.Error(err)
	}
	w.wrote(0, 1, 2)
}

// TestNotPrimaryWhenExecuted checks that the server does not execute a request if another
// controller becomes primary while the request waits for the lock.
func TestNotPrimaryWhenExecuted(t *testing.T) {
	w := newWatchedServer(t)
	w.state.Lock()
	answers := make(chan error, 2)
	go func() { answers <- w.set(t.Context(), 1, 0) }()
	go func() { answers <- w.load(t.Context(), 1) }()
	done := make(chan struct{})
	go func() { w.arbitrate(2); close(done) }()
	for r := w.arb.known(roleKey{}); r.primary.Load() != nil; {
		// give the new primary time to begin waiting for running writes
		time.Sleep(time.Millisecond)
	}
	w.state.Unlock()
	<-done
	for range 2 {
		if err := <-answers; status.Code(err) != codes.PermissionDenied {
			t.Errorf("a call of an earlier primary: %v", err)
		}
	}
	w.wrote()
	if w.dev.commits != 1 {
		t.Errorf("%d programs were committed, want the first alone", w.dev.commits)
	}
	if err := w.set(t.Context(), 2, 0); err != nil {
		t.Error(err)
	}
	// Verifying a program takes a while, so the server checks the caller again afterwards.
	w.dev.verifying = func() {
		go w.arbitrate(3)
		for r := w.arb.known(roleKey{}); r.primary.Load() != nil; {
			time.Sleep(time.Millisecond)
		}
	}
	if err := w.load(t.Context(), 2); status.Code(err) != codes.PermissionDenied || w.dev.commits != 1 {
		t.Errorf("a program of a primary that was replaced while it was verified: %v, %d commits", err, w.dev.commits)
	}
}

// TestCallerGoneWhileAProgramIsLoaded checks that the server abandons a load if the caller
// disconnects before the commit. The server must finish a commit that has begun.
func TestCallerGoneWhileAProgramIsLoaded(t *testing.T) {
	w := newWatchedServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.dev.verifying = cancel
	if err := w.load(ctx, 1); status.Code(err) != codes.Canceled || w.dev.commits != 1 || w.live.pipe != w.pipe {
		t.Errorf("its caller has gone while it was verified: %v, %d commits", err, w.dev.commits)
	}
	ctx, cancel = context.WithCancel(t.Context())
	w.dev.verifying, w.dev.committing = func() {}, cancel
	if err := w.load(ctx, 1); err != nil || w.dev.commits != 2 || w.live.pipe != w.dev.Pipeline() {
		t.Errorf("its caller has gone while it was committed: %v, %d commits", err, w.dev.commits)
	}
}

// TestReadOfWhatDoesNotCount checks that a read does not see an update before the update applies to
// every packet.
func TestReadOfWhatDoesNotCount(t *testing.T) {
	w := newWatchedServer(t)
	read := func() error {
		_, _, _, err := w.collect(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{{
			Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{RegisterId: w.ids["last_len"]}}}}}, nil)
		return err
	}
	w.pipe.barrier = errors.New("a packet stands still")
	if err := w.set(t.Context(), 1, 0); status.Code(err) != codes.Unavailable {
		t.Errorf("a write while a packet stands still: %v", err)
	}
	if err := read(); status.Code(err) != codes.Unavailable {
		t.Errorf("a read while a packet stands still: %v", err)
	}
	w.pipe.barrier = nil
	before := w.pipe.barriers
	for range 2 {
		if err := read(); err != nil {
			t.Errorf("a read after that: %v", err)
		}
	}
	if n := w.pipe.barriers - before; n != 1 {
		t.Errorf("%d barriers for two reads, want one", n)
	}
}

// TestPanicOfTheEngine checks that a program on which the engine panics is refused with INTERNAL.
// The next program must be accepted.
func TestPanicOfTheEngine(t *testing.T) {
	w := newWatchedServer(t)
	nothing, fails := func() {}, func() { panic("index out of range") }
	for name, at := range map[string][2]func(){"VERIFY": {fails, nothing}, "COMMIT": {nothing, fails}} {
		w.dev.verifying, w.dev.committing = at[0], at[1]
		if err := w.load(t.Context(), 1); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v, want INTERNAL", name, err)
		}
	}
	w.dev.verifying, w.dev.committing = nothing, nothing
	if err := w.load(t.Context(), 1); err != nil {
		t.Errorf("the next program: %v", err)
	}
}
