package p4proxy_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// These are ids in the P4Info of these tests.
const (
	configTable = 1 + iota
	keyTable
	versionsRegister
)

var info = &configv1.P4Info{
	Tables: []*configv1.Table{{Preamble: &configv1.Preamble{Id: configTable, Alias: "chain_config"}},
		{Preamble: &configv1.Preamble{Id: keyTable, Alias: "key_index"}}},
	Registers: []*configv1.Register{{Preamble: &configv1.Preamble{Id: versionsRegister, Alias: "versions"}}},
}

// peer is a P4Runtime server for tests that records all messages in their order.
type peer struct {
	v1.UnimplementedP4RuntimeServer
	mu     sync.Mutex
	got    []string
	stream v1.P4Runtime_StreamChannelServer
	ended  int // number of ended streams
	refuse error
}

func (s *peer) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, what)
}

func (s *peer) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *peer) Write(_ context.Context, r *v1.WriteRequest) (*v1.WriteResponse, error) {
	s.note(fmt.Sprint("write ", r.ElectionId.GetLow()))
	return &v1.WriteResponse{}, s.refuse
}

func (s *peer) SetForwardingPipelineConfig(_ context.Context, r *v1.SetForwardingPipelineConfigRequest) (
	*v1.SetForwardingPipelineConfigResponse, error) {
	s.note("program " + r.Action.String())
	return &v1.SetForwardingPipelineConfigResponse{}, nil
}

func (s *peer) Capabilities(context.Context, *v1.CapabilitiesRequest) (*v1.CapabilitiesResponse, error) {
	return &v1.CapabilitiesResponse{P4RuntimeApiVersion: "1.5"}, nil
}

func (s *peer) Read(_ *v1.ReadRequest, out v1.P4Runtime_ReadServer) error {
	s.note("read")
	since := metadata.ValueFromIncomingContext(out.Context(), "since")
	_ = out.SetHeader(metadata.Pairs("snapshot", "of "+since[0]))
	for i := range 3 {
		if err := out.Send(&v1.ReadResponse{Entities: make([]*v1.Entity, i)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *peer) StreamChannel(st v1.P4Runtime_StreamChannelServer) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended++
	}()
	for {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		if a := m.GetArbitration(); a != nil {
			s.mu.Lock()
			s.stream = st
			s.mu.Unlock()
			s.note("arbitration")
			answer := &v1.StreamMessageResponse{Update: &v1.StreamMessageResponse_Arbitration{Arbitration: a}}
			if err := st.Send(answer); err != nil {
				return err
			}
			continue
		}
		s.note("packet " + string(m.GetPacket().GetPayload()))
	}
}

// in sends a packet-in to the controller.
func (s *peer) in(t *testing.T, payload string) {
	t.Helper()
	if err := s.stream.Send(&v1.StreamMessageResponse{Update: &v1.StreamMessageResponse_Packet{
		Packet: &v1.PacketIn{Payload: []byte(payload)}}}); err != nil {
		t.Error(err)
	}
}

// start starts a peer, a proxy for it, and a client of the proxy.
func start(t *testing.T) (*peer, *p4proxy.Proxy, v1.P4RuntimeClient) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &peer{}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	v1.RegisterP4RuntimeServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	p, err := p4proxy.Start(p4proxy.Options{Target: l.Addr().String(), P4Info: info})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return s, p, dial(t, p)
}

func dial(t *testing.T, p *p4proxy.Proxy) v1.P4RuntimeClient {
	t.Helper()
	c, err := grpc.NewClient(p.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return v1.NewP4RuntimeClient(c)
}

// write makes a Write of one table, which is identified by a number.
func write(table uint32, number uint64) *v1.WriteRequest {
	return &v1.WriteRequest{ElectionId: &v1.Uint128{Low: number}, Updates: []*v1.Update{{Entity: &v1.Entity{
		Entity: &v1.Entity_TableEntry{TableEntry: &v1.TableEntry{TableId: table}}}}}}
}

func packet(payload string) *v1.StreamMessageRequest {
	return &v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Packet{
		Packet: &v1.PacketOut{Payload: []byte(payload)}}}
}

// open opens a stream, and waits until its arbitration is complete.
func open(t *testing.T, ctx context.Context, c v1.P4RuntimeClient) v1.P4Runtime_StreamChannelClient {
	t.Helper()
	st, err := c.StreamChannel(ctx)
	if err == nil {
		err = st.Send(&v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Arbitration{
			Arbitration: &v1.MasterArbitrationUpdate{DeviceId: 1}}})
	}
	if err == nil {
		_, err = st.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// expect waits until the peer has recorded exactly these messages.
func (s *peer) expect(t *testing.T, want ...string) {
	t.Helper()
	poll.Until(t, 10*time.Second, fmt.Sprintf("the switch to have %q", want), func() bool {
		return slices.Equal(s.noted(), want)
	}, func() string { return fmt.Sprintf("it has %q", s.noted()) })
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestPassesOn: without rules all calls pass unchanged, with headers, errors and large messages.
func TestPassesOn(t *testing.T) {
	s, _, c := start(t)
	ctx := timeout(t)
	if r, err := c.Capabilities(ctx, &v1.CapabilitiesRequest{}); err != nil || r.P4RuntimeApiVersion != "1.5" {
		t.Errorf("%v, %v", r, err)
	}
	_, err := c.GetForwardingPipelineConfig(ctx, &v1.GetForwardingPipelineConfigRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("what the switch does not have is answered %v", err)
	}
	refusal, err := status.New(codes.Unknown, "two").WithDetails(
		&v1.Error{CanonicalCode: 5, Message: "no such entry"})
	if err != nil {
		t.Fatal(err)
	}
	s.refuse = refusal.Err()
	_, err = c.Write(ctx, write(configTable, 1))
	if d := status.Convert(err).Details(); status.Code(err) != codes.Unknown || len(d) != 1 ||
		d[0].(*v1.Error).Message != "no such entry" {
		t.Errorf("a refusal came as %v with %v", err, d)
	}
	large := make([]byte, 20<<20)
	_, _ = rand.Read(large)
	if _, err := c.SetForwardingPipelineConfig(ctx, &v1.SetForwardingPipelineConfigRequest{
		Config: &v1.ForwardingPipelineConfig{P4DeviceConfig: large}}); err != nil {
		t.Error(err)
	}
	r, err := c.Read(metadata.AppendToOutgoingContext(ctx, "since", "then"), &v1.ReadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		var m *v1.ReadResponse
		if m, err = r.Recv(); err == nil && len(m.Entities) != n {
			t.Errorf("answer %d has %d entities", n, len(m.Entities))
		}
	}
	if h, _ := r.Header(); n != 4 || !slices.Equal(h.Get("snapshot"), []string{"of then"}) {
		t.Errorf("%d answers, header %v", n-1, h)
	}
	st := open(t, ctx, c)
	if err := st.Send(packet("out")); err != nil {
		t.Error(err)
	}
	s.expect(t, "write 1", "program UNSPECIFIED", "read", "arbitration", "packet out")
	s.in(t, "in")
	if m, err := st.Recv(); err != nil || string(m.GetPacket().GetPayload()) != "in" {
		t.Errorf("%v, %v", m, err)
	}
}

// TestHolds: messages that no rule holds overtake held messages, on the stream and among calls.
// After the rule has caught its maximum, later messages of the same kind overtake them, too.
func TestHolds(t *testing.T) {
	s, p, c := start(t)
	ctx := timeout(t)
	st := open(t, ctx, c)
	first := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Most: 1, Hold: true})
	config := p.Add(p4proxy.Rule{Match: p4proxy.Writes("chain_config"), Hold: true})
	for _, payload := range []string{"one", "two"} {
		if err := st.Send(packet(payload)); err != nil {
			t.Fatal(err)
		}
	}
	s.expect(t, "arbitration", "packet two")
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(ctx, write(configTable, 7))
		done <- err
	}()
	if err := config.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(ctx, write(keyTable, 8)); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "arbitration", "packet two", "write 8")
	select {
	case err := <-done:
		t.Fatalf("a Write that is held was answered: %v", err)
	default:
	}
	if d, err := config.Release(ctx); err != nil || len(d) != 1 || d[0].Err != nil ||
		!slices.Equal(d[0].Of, []string{"chain_config"}) {
		t.Errorf("%v, %v", d, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if d, err := first.Release(ctx); err != nil || len(d) != 1 || string(d[0].Payload) != "one" {
		t.Errorf("%v, %v", d, err)
	}
	// The stream and the calls are separate channels. Their order is not guaranteed.
	s.expect(t, "arbitration", "packet two", "write 8", "write 7", "packet one")
	if _, err := c.Write(ctx, write(configTable, 9)); err != nil { // the rule has ended, so this Write passes
		t.Fatal(err)
	}
	s.expect(t, "arbitration", "packet two", "write 8", "write 7", "packet one", "write 9")

	// This rule catches messages to the controller.
	in := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketIn), Most: 1, Hold: true})
	s.in(t, "three")
	s.in(t, "four")
	for n, want := range []string{"four", "three"} {
		if m, err := st.Recv(); err != nil || string(m.GetPacket().GetPayload()) != want {
			t.Errorf("%v, %v instead of %s", m, err, want)
		}
		if n == 0 {
			if _, err := in.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestAfterTheCaller: a call is executed after its caller got DEADLINE_EXCEEDED, after its deadline
// has passed, or after its connection has broken. The test then knows whether the switch refused
// the call.
func TestAfterTheCaller(t *testing.T) {
	s, p, c := start(t)
	ctx := timeout(t)
	given := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.Write), Most: 1, Hold: true, GiveUp: true})
	if _, err := c.Write(ctx, write(configTable, 1)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller is given up for: %v", err)
	}
	late := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.Program), Late: true})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := c.SetForwardingPipelineConfig(short, &v1.SetForwardingPipelineConfigRequest{
		Action: v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the deadline has passed: %v", err)
	}
	s.expect(t, "program VERIFY_AND_COMMIT")
	if n, refused := late.Count(); n != 1 || refused != 0 {
		t.Errorf("%d late, %d refused", n, refused)
	}
	if n := given.Waiting(); n != 1 {
		t.Errorf("%d wait", n)
	}
	s.refuse = status.Error(codes.PermissionDenied, "not primary")
	if d, err := given.Release(ctx); err != nil || len(d) != 1 || status.Code(d[0].Err) != codes.PermissionDenied {
		t.Errorf("%v, %v", d, err)
	}
	s.expect(t, "program VERIFY_AND_COMMIT", "write 1")

	// The caller does not receive the answer to this call.
	s.refuse = nil
	p.Add(p4proxy.Rule{Match: p4proxy.Answers(p4proxy.Kinds(p4proxy.Write)), Most: 1, GiveUp: true})
	if _, err := c.Write(ctx, write(configTable, 2)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the answer is lost: %v", err)
	}
	s.expect(t, "program VERIFY_AND_COMMIT", "write 1", "write 2")
	slow := p.Add(p4proxy.Rule{Match: p4proxy.Answers(p4proxy.WritesBut("chain_config")),
		Delay: func() time.Duration { return 50 * time.Millisecond }})
	began := time.Now()
	if _, err := c.Write(ctx, write(keyTable, 3)); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if n, _ := slow.Count(); n != 1 {
		t.Errorf("%d answers were slow", n)
	}
}

// TestStreamOutlivesItsController: the proxy delivers waiting messages of a controller that has
// left on that controller's own stream. The stream ends only after that.
func TestStreamOutlivesItsController(t *testing.T) {
	s, p, c := start(t)
	ctx := timeout(t)
	gone, leave := context.WithCancel(ctx)
	st := open(t, gone, c)
	held := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut), Hold: true})
	if err := st.Send(packet("late")); err != nil {
		t.Fatal(err)
	}
	if err := held.Await(ctx, 1); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := st.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the stream goes on: %v", err)
	}
	open(t, ctx, dial(t, p)) // this stream belongs to the next controller
	time.Sleep(50 * time.Millisecond)
	s.expect(t, "arbitration", "arbitration")
	if s.mu.Lock(); s.ended != 0 {
		t.Error("the stream has ended at the switch, and something waits for it")
	}
	s.mu.Unlock()
	if _, err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	s.expect(t, "arbitration", "arbitration", "packet late")
	poll.Until(t, 10*time.Second, "the stream to end", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ended == 1
	})
}

// TestMatches checks the Match functions.
func TestMatches(t *testing.T) {
	wrote := func(of ...string) *p4proxy.Message { return &p4proxy.Message{Kind: p4proxy.Write, Of: of} }
	reply := func(m *p4proxy.Message) *p4proxy.Message { m.Reply = true; return m }
	for _, x := range []struct {
		what  string
		match p4proxy.Match
		m     *p4proxy.Message
		want  bool
	}{
		{"a table among others", p4proxy.Writes("chain_config"), wrote("key_index", "chain_config"), true},
		{"another table", p4proxy.Writes("chain_config"), wrote("key_index"), false},
		{"a Read of the table", p4proxy.Writes("chain_config"), &p4proxy.Message{Kind: p4proxy.Read, Of: []string{"chain_config"}}, false},
		{"an answer", p4proxy.Writes("chain_config"), reply(wrote("chain_config")), false},
		{"other tables", p4proxy.WritesBut("chain_config", "key_index"), wrote("ipv4_lpm"), true},
		{"not only other tables", p4proxy.WritesBut("chain_config", "key_index"), wrote("ipv4_lpm", "key_index"), false},
		{"an answer, again", p4proxy.Answers(p4proxy.Writes("chain_config")), reply(wrote("chain_config")), true},
		{"a request", p4proxy.Answers(p4proxy.Writes("chain_config")), wrote("chain_config"), false},
		{"both", p4proxy.All(p4proxy.Kinds(p4proxy.Write), p4proxy.Writes("key_index")), wrote("key_index"), true},
		{"one of two", p4proxy.Any(p4proxy.Kinds(p4proxy.Read), p4proxy.Writes("key_index")), wrote("key_index"), true},
		{"neither", p4proxy.Any(p4proxy.Kinds(p4proxy.Read), p4proxy.Writes("key_index")), wrote(), false},
	} {
		if got := x.match(x.m); got != x.want {
			t.Errorf("%s (%v): %v", x.what, x.m, got)
		}
	}
}

// TestRandom: a random run catches about the intended share of messages, delivers all of them, and
// answers calls with DEADLINE_EXCEEDED only if that is permitted.
func TestRandom(t *testing.T) {
	s, p, c := start(t)
	ctx := timeout(t)
	r := p.AddRandom(1,
		p4proxy.Chance{Name: "given up", Match: p4proxy.Writes("chain_config"), Share: 0.3,
			Longest: 20 * time.Millisecond, GiveUp: true},
		p4proxy.Chance{Name: "late", Match: p4proxy.Kinds(p4proxy.Write), Share: 0.5, Longest: 20 * time.Millisecond})
	var mu sync.Mutex
	given := 0
	var all sync.WaitGroup
	const writes = 200
	for i := range writes {
		all.Go(func() {
			_, err := c.Write(ctx, write(uint32(configTable+i%2), uint64(i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status.Code(err) == codes.DeadlineExceeded && i%2 == 0:
				given++
			case err != nil:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := r.End(ctx); err != nil {
		t.Fatal(err)
	}
	got := s.noted()
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != writes {
		t.Errorf("%d Writes were executed, not %d", n, writes)
	}
	sum := map[string]int{}
	r.Tally(sum)
	if sum["given up"] != given || given < writes/2*3/20 || given > writes/2*9/20 {
		t.Errorf("given up for %d callers, which heard it %d times", sum["given up"], given)
	}
	if n := sum["late"]; n < writes/4 || n > writes*3/5 {
		t.Errorf("%d of %d late", n, writes)
	}
	if _, err := c.Write(ctx, write(configTable, writes)); err != nil { // the rules have ended, so this Write passes
		t.Error(err)
	}
}

// TestClosed: a closed proxy delivers nothing more, and leaves nothing behind.
func TestClosed(t *testing.T) {
	s, p, c := start(t)
	ctx := timeout(t)
	st := open(t, ctx, c)
	held := p.Add(p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.PacketOut, p4proxy.Write), Hold: true, GiveUp: true})
	if err := st.Send(packet("never")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(ctx, write(configTable, 1)); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	if err := held.Await(ctx, 2); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if n := held.Waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
	if _, err := st.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	if got := s.noted(); !slices.Equal(got, []string{"arbitration"}) {
		t.Errorf("the switch has %q", got)
	}
}
