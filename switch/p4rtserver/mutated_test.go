package p4rtserver

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/internal/mutation"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

var (
	mutatedRequests = flag.Int("mutated-requests", 300, "how many requests TestMutatedRequests sends to each engine")
	// If the seed is random, few requests may not produce all kinds of answers that the test
	// requires.
	mutatedSeed = flag.Uint64("mutated-seed", 1, "the seed of TestMutatedRequests; 0: another each time")
)

// conversations returns the requests of each scenario in testdata/scenarios that has a program. The
// requests of a scenario are in order.
func conversations(t *testing.T) (all [][]proto.Message) {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		program := "testdata/" + strings.TrimSuffix(filepath.Base(path), ".txt")
		if _, err := os.Stat(program + ".json"); err != nil {
			program = "testdata/entities"
		}
		w := newWorld(t, program)
		recorded := &recorder{}
		w.rpc = p4v1.NewP4RuntimeClient(recordingConn{w.conn, recorded})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.run(t, d)
			return d.Expected // TestScenarios compares the expected answers
		})
		if slices.ContainsFunc(recorded.sent, commits) {
			all = append(all, recorded.sent)
		}
	}
	return all
}

// recorder records the messages that a client sends.
type recorder struct {
	mu   sync.Mutex
	sent []proto.Message
}

func (r *recorder) note(m any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, proto.Clone(m.(proto.Message)))
}

type recordingConn struct {
	*grpc.ClientConn
	*recorder
}

func (c recordingConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.note(args)
	return c.ClientConn.Invoke(ctx, method, args, reply, opts...)
}

func (c recordingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConn.NewStream(ctx, desc, method, opts...)
	return recordingStream{s, c.recorder}, err
}

type recordingStream struct {
	grpc.ClientStream
	*recorder
}

func (s recordingStream) SendMsg(m any) error {
	s.note(m)
	return s.ClientStream.SendMsg(m)
}

// mutant returns a changed copy of a message. If the message contains a program, mutant may change
// the program as a separate document.
func mutant(t *testing.T, m proto.Message, r *rand.Rand) proto.Message {
	t.Helper()
	change := func(text []byte) []byte {
		var doc any
		if err := json.Unmarshal(text, &doc); err != nil {
			return text // the scenario's program is broken on purpose
		}
		mutation.Document(doc, r)
		text, err := json.Marshal(doc)
		if err != nil { // the mutation made the document contain itself
			return nil
		}
		return text
	}
	if set, ok := m.(*p4v1.SetForwardingPipelineConfigRequest); ok && len(set.GetConfig().GetP4DeviceConfig()) > 0 &&
		r.IntN(2) == 0 {
		set = proto.CloneOf(set)
		set.Config.P4DeviceConfig = change(set.Config.P4DeviceConfig)
		return set
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		out := m.ProtoReflect().New().Interface()
		changed := change(text)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(changed, out); err == nil &&
			!proto.Equal(m, out) {
			return out
		}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 { // make changes that JSON cannot express
		b[r.IntN(len(b))] = byte(r.Uint32())
		out := m.ProtoReflect().New().Interface()
		if proto.Unmarshal(b, out) == nil {
			return out
		}
	}
	return m
}

// hostileController is the primary. A second controller's stream receives arbitrary messages.
type hostileController struct {
	t        *testing.T
	rpc      p4v1.P4RuntimeClient
	election uint64
	primary  *hostileStream
	other    *hostileStream
	codes    map[codes.Code]int
}

type hostileStream struct {
	p4v1.P4Runtime_StreamChannelClient
	ended       chan struct{}
	arbitration chan struct{} // receives the answers to arbitration messages
}

// opened returns s or, if the server has ended s, a new stream.
func (c *hostileController) opened(s *hostileStream) *hostileStream {
	if s != nil {
		select {
		case <-s.ended:
		default:
			return s
		}
	}
	stream, err := c.rpc.StreamChannel(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	s = &hostileStream{stream, make(chan struct{}), make(chan struct{}, 1)}
	go func() {
		defer close(s.ended)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if m.GetArbitration().GetStatus().GetCode() == int32(codes.OK) && m.GetArbitration() != nil {
				select {
				case s.arbitration <- struct{}{}:
				default:
				}
			}
		}
	}()
	return s
}

// become makes the controller primary. Its election id is above those of scenarios and mutants.
func (c *hostileController) become() {
	c.t.Helper()
	c.primary = c.opened(c.primary)
	c.election++
	select {
	case <-c.primary.arbitration:
	default:
	}
	_ = c.primary.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1,
			ElectionId: &p4v1.Uint128{High: 1 << 32, Low: c.election}}}})
	select {
	case <-c.primary.arbitration:
	case <-time.After(30 * time.Second):
		c.t.Fatal("the controller with the highest id is not the primary")
	}
}

// send sends a message. If the message has an answer, send counts the answer's status code.
func (c *hostileController) send(m proto.Message) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	var err error
	switch m := m.(type) {
	case *p4v1.WriteRequest:
		_, err = c.rpc.Write(ctx, m)
	case *p4v1.SetForwardingPipelineConfigRequest:
		_, err = c.rpc.SetForwardingPipelineConfig(ctx, m)
	case *p4v1.GetForwardingPipelineConfigRequest:
		_, err = c.rpc.GetForwardingPipelineConfig(ctx, m)
	case *p4v1.ReadRequest:
		var s p4v1.P4Runtime_ReadClient
		for s, err = c.rpc.Read(ctx, m); err == nil; {
			_, err = s.Recv()
		}
		if err == io.EOF {
			err = nil
		}
	case *p4v1.StreamMessageRequest:
		if m.GetArbitration() != nil {
			c.other = c.opened(c.other)
			_ = c.other.Send(m)
		} else {
			c.primary = c.opened(c.primary)
			_ = c.primary.Send(m)
		}
		return
	default:
		c.t.Fatalf("a scenario sends a %T", m)
	}
	code := status.Code(err)
	c.codes[code]++
	switch code {
	case codes.Internal, codes.Unavailable, codes.DeadlineExceeded:
		c.t.Errorf("%v is answered %v", m, err)
	case codes.PermissionDenied:
		c.become()
	}
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*p4v1.Error); ok && codes.Code(e.CanonicalCode) == codes.Internal {
			c.t.Errorf("%v is answered %v", m, e)
		}
	}
}

// own usually changes a request so that it comes from the primary. One in twenty requests stays as
// it is.
func (c *hostileController) own(m proto.Message, r *rand.Rand) proto.Message {
	if r.IntN(20) == 0 {
		return m
	}
	m = proto.Clone(m)
	id := &p4v1.Uint128{High: 1 << 32, Low: c.election}
	switch m := m.(type) {
	case *p4v1.WriteRequest:
		m.DeviceId, m.ElectionId, m.Role = 1, id, ""
	case *p4v1.SetForwardingPipelineConfigRequest:
		m.DeviceId, m.ElectionId, m.Role = 1, id, ""
	case *p4v1.ReadRequest:
		m.DeviceId, m.Role = 1, ""
	}
	return m
}

// TestMutatedRequests sends mutated messages of the scenarios to a switch of each engine: programs,
// writes, reads and stream messages. Each message must get an answer other than an internal error.
// The switch must still work afterwards.
func TestMutatedRequests(t *testing.T) {
	all := conversations(t)
	engines := map[string]func() (target.Device, error){
		"interp": func() (target.Device, error) {
			return userspace.New(userspace.Options{CPUPort: 255, Log: slog.New(slog.DiscardHandler)})
		},
		"ebpf": func() (target.Device, error) {
			return ebpf.New(ebpf.Options{CPUPort: 255, Log: slog.New(slog.DiscardHandler)})
		},
	}
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			if name == "ebpf" {
				if err := ebpf.Probe(); err != nil {
					t.Skip(err)
				}
			}
			dev, err := engine()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}()
			g := grpc.NewServer(ServerOptions()...)
			New(dev, Options{DeviceID: 1, Log: slog.New(slog.DiscardHandler)}).Register(g)
			pipe := bufconn.Listen(1 << 20)
			go func() { _ = g.Serve(pipe) }()
			defer g.Stop()
			conn, err := grpc.NewClient("passthrough:///switch", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return pipe.Dial() }))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := &hostileController{t: t, rpc: p4v1.NewP4RuntimeClient(conn), codes: map[codes.Code]int{}}
			seed := cmp.Or(*mutatedSeed, uint64(time.Now().UnixNano()))
			r := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			c.become()
			sent, step := 0, max(*mutatedRequests/20, 1000)
			next := step
			for began := time.Now(); sent < *mutatedRequests && !t.Failed(); {
				requests := all[r.IntN(len(all))]
				program := slices.IndexFunc(requests, commits)
				c.send(c.own(requests[program], r))
				for n := 0; n < 20*len(requests) && sent < *mutatedRequests && !t.Failed(); n++ {
					m := requests[n%len(requests)]
					if isProgram(m) && r.IntN(10) > 0 {
						continue // these requests take the longest
					}
					if r.IntN(4) > 0 {
						m = mutant(t, m, r)
						sent++
					}
					c.send(c.own(m, r))
					if isProgram(m) && r.IntN(2) == 0 {
						c.send(c.own(requests[program], r))
					}
				}
				if sent >= next {
					next += step
					t.Logf("%d mutated requests in %v: %v", sent, time.Since(began).Round(time.Second), c.codes)
				}
			}
			t.Logf("%d mutated requests: %v", sent, c.codes)
			if c.codes[codes.OK] == 0 || c.codes[codes.InvalidArgument] == 0 {
				t.Errorf("the answers are %v: the test means little", c.codes)
			}
		})
	}
}

func isProgram(m proto.Message) bool {
	_, ok := m.(*p4v1.SetForwardingPipelineConfigRequest)
	return ok
}

func commits(m proto.Message) bool {
	set, ok := m.(*p4v1.SetForwardingPipelineConfigRequest)
	return ok && set.Action == p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT &&
		set.Config.GetP4Info() != nil
}
