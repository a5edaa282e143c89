package p4rtserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

// TestScenarios runs the conversations in testdata/scenarios. They contain requests of controllers
// to a P4Runtime server over gRPC, in protobuf's text form, and the server's answers. The program
// has the scenario's name. If there is no such program, it is entities.p4. The flag -rewrite
// rewrites the answers. Check them before you commit them.
//
//	connect NAME [election=N] [role=R] [device=D]    a controller opens its stream, or sends on it
//	disconnect NAME
//	push NAME ACTION [p4info=none|other] [config=none|broken] [cookie=N]
//	restrict ALIAS                                   the body is the restriction of a table or an action
//	write NAME [election=N] [atomicity=A]            the body is the updates of a WriteRequest
//	read                                             the body is the entities of a ReadRequest
//	say NAME                                         the body is a StreamMessageRequest
//	config                                           GetForwardingPipelineConfig
//
// $NAME in a body stands for the id of the object with that alias in the P4Info, also in answers.
// The transcript of a command is its answer, followed by the messages on the controllers' streams.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		program := strings.TrimSuffix(filepath.Base(path), ".txt")
		if _, err := os.Stat("testdata/" + program + ".json"); err != nil {
			program = "entities"
		}
		w := newWorld(t, "testdata/"+program)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := w.run(t, d)
			return out + w.heard()
		})
	})
}

// portedDevice is a switch with the ports 1 to 4, whose interfaces do not exist.
type portedDevice struct{ *userspace.Device }

func (portedDevice) Ports() map[target.Port]target.PortCounters {
	out := map[target.Port]target.PortCounters{}
	for n := range uint32(4) {
		out[target.Port{Number: n + 1, Iface: portedIface(n + 1)}] = target.PortCounters{}
	}
	return out
}

// portedIface is the interface name of a port.
func portedIface(port uint32) string { return fmt.Sprintf("no-such-%d", port) }

// linksDown has the names of the interfaces that are down in the test.
var linksDown sync.Map

func init() {
	linkUp = func(iface string) bool {
		_, down := linksDown.Load(iface)
		return !down
	}
}

// world is a P4Runtime server with its controllers.
type world struct {
	dev     target.Device
	info    *p4cfg.P4Info
	program []byte
	ids     map[string]uint32
	names   map[uint32]string
	conn    *grpc.ClientConn
	rpc     p4v1.P4RuntimeClient

	controllers map[string]*controller
	mu          sync.Mutex
	messages    []string
}

type controller struct {
	stream   p4v1.P4Runtime_StreamChannelClient
	cancel   context.CancelFunc
	election uint64
	role     string
}

func newWorld(t *testing.T, program string) *world {
	t.Helper()
	w := &world{info: &p4cfg.P4Info{}, ids: map[string]uint32{}, names: map[uint32]string{},
		controllers: map[string]*controller{}}
	text, err := os.ReadFile(program + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	if err := prototext.Unmarshal(text, w.info); err != nil {
		t.Fatal(err)
	}
	if w.program, err = os.ReadFile(program + ".json"); err != nil {
		t.Fatal(err)
	}
	w.nameIDs()
	dev, err := userspace.New(userspace.Options{CPUPort: 255, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.dev = portedDevice{dev}
	srv := New(w.dev, Options{DeviceID: 1, Log: slog.New(slog.DiscardHandler)})
	g := grpc.NewServer(ServerOptions()...)
	srv.Register(g)
	pipe := bufconn.Listen(1 << 20)
	go func() { _ = g.Serve(pipe) }()
	w.conn, err = grpc.NewClient("passthrough:///switch",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn,
			error) {
			return pipe.Dial()
		}))
	if err != nil {
		t.Fatal(err)
	}
	w.rpc = p4v1.NewP4RuntimeClient(w.conn)
	t.Cleanup(func() {
		for _, c := range w.controllers {
			c.cancel()
		}
		_ = w.conn.Close()
		g.Stop()
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// nameIDs records the aliases of all objects in the P4Info.
func (w *world) nameIDs() {
	add := func(p *p4cfg.Preamble) { w.ids[p.Alias], w.names[p.Id] = p.Id, p.Alias }
	for _, x := range w.info.Tables {
		add(x.Preamble)
	}
	for _, x := range w.info.Actions {
		add(x.Preamble)
	}
	for _, x := range w.info.ActionProfiles {
		add(x.Preamble)
	}
	for _, x := range w.info.Counters {
		add(x.Preamble)
	}
	for _, x := range w.info.DirectCounters {
		add(x.Preamble)
	}
	for _, x := range w.info.Meters {
		add(x.Preamble)
	}
	for _, x := range w.info.DirectMeters {
		add(x.Preamble)
	}
	for _, x := range w.info.ValueSets {
		add(x.Preamble)
	}
	for _, x := range w.info.Registers {
		add(x.Preamble)
	}
	for _, x := range w.info.Digests {
		add(x.Preamble)
	}
}

var (
	nameInBody = regexp.MustCompile(`\$\w+`)
	idInAnswer = regexp.MustCompile(
		`\b((?:table|action|action_profile|counter|meter|value_set|register|digest)_id):\s*(\d+)`)
	number = regexp.MustCompile(`\b\d{5,}\b`)
	spaces = regexp.MustCompile(`: +`)
)

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var name string
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	option := func(key, otherwise string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key && len(a.Vals) == 1 {
				return a.Vals[0]
			}
		}
		return otherwise
	}
	count := func(key string, otherwise uint64) uint64 {
		v, err := strconv.ParseUint(option(key, strconv.FormatUint(otherwise, 10)), 10, 64)
		if err != nil {
			d.Fatalf(t, "%s: %v", key, err)
		}
		return v
	}
	parse := func(m proto.Message) {
		body := nameInBody.ReplaceAllStringFunc(d.Input, func(s string) string {
			id, ok := w.ids[s[1:]]
			if !ok {
				d.Fatalf(t, "nothing has the alias %s", s)
			}
			return strconv.FormatUint(uint64(id), 10)
		})
		if err := prototext.Unmarshal([]byte(body), m); err != nil {
			d.Fatalf(t, "the body: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := w.controllers[name]
	if c == nil && slices.Contains([]string{"disconnect", "push", "write", "say"}, d.Cmd) {
		d.Fatalf(t, "no controller %q", name)
	}
	switch d.Cmd {
	case "connect":
		return w.connect(t, name, option("election", ""), option("role", ""), count("device", 1))
	case "disconnect":
		c.cancel()
		delete(w.controllers, name)
		return ""
	case "push":
		return w.push(ctx, c, d.CmdArgs[1].Key, option("p4info", ""), option("config", ""),
			count("cookie", 0))
	case "restrict":
		w.restrict(t, name, d.Input)
		return ""
	case "write":
		req := &p4v1.WriteRequest{}
		parse(req)
		req.DeviceId, req.Role, req.ElectionId = count("device", 1), c.role,
			&p4v1.Uint128{Low: count("election", c.election)}
		req.Atomicity = p4v1.WriteRequest_Atomicity(p4v1.WriteRequest_Atomicity_value[option(
			"atomicity", "CONTINUE_ON_ERROR")])
		_, err := w.rpc.Write(ctx, req)
		return w.outcome(err)
	case "read":
		req := &p4v1.ReadRequest{}
		parse(req)
		req.DeviceId = count("device", 1)
		return w.read(ctx, req)
	case "say":
		m := &p4v1.StreamMessageRequest{}
		parse(m)
		return w.outcome(c.stream.Send(m))
	case "config":
		r, err := w.rpc.GetForwardingPipelineConfig(ctx,
			&p4v1.GetForwardingPipelineConfigRequest{DeviceId: count("device", 1)})
		if err != nil {
			return w.outcome(err)
		}
		cfg := r.GetConfig()
		return fmt.Sprintf("p4info: %d tables, program: %d bytes, cookie: %d\n",
			len(cfg.GetP4Info().GetTables()), len(cfg.GetP4DeviceConfig()),
			cfg.GetCookie().GetCookie())
	}
	d.Fatalf(t, "no such command %q", d.Cmd)
	return ""
}

// restrict replaces the restriction of a table or action in the P4Info. It writes it in p4c's form.
func (w *world) restrict(t *testing.T, alias, text string) {
	t.Helper()
	quoted := `("` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `")`
	for _, x := range w.info.Tables {
		if x.Preamble.Alias == alias {
			x.Preamble.Annotations = []string{"@brief(\"of a test\")", "@entry_restriction" + quoted}
			return
		}
	}
	for _, x := range w.info.Actions {
		if x.Preamble.Alias == alias {
			x.Preamble.Annotations = []string{"@action_restriction" + quoted}
			return
		}
	}
	t.Fatalf("no table and no action %q", alias)
}

func (w *world) connect(t *testing.T, name, election, role string, device uint64) string {
	t.Helper()
	c := w.controllers[name]
	if c == nil {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := w.rpc.StreamChannel(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c = &controller{stream: stream, cancel: cancel}
		w.controllers[name] = c
		go w.listen(name, stream)
	}
	m := &p4v1.MasterArbitrationUpdate{DeviceId: device}
	if role != "" {
		m.Role = &p4v1.Role{Name: role}
	}
	if election != "" {
		id, err := strconv.ParseUint(election, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m.ElectionId = &p4v1.Uint128{Low: id}
		c.election = id
	}
	c.role = role
	return w.outcome(c.stream.Send(&p4v1.StreamMessageRequest{
		Update: &p4v1.StreamMessageRequest_Arbitration{Arbitration: m}}))
}

// listen records the messages that arrive on a controller's stream.
func (w *world) listen(name string, stream p4v1.P4Runtime_StreamChannelClient) {
	for {
		m, err := stream.Recv()
		var text string
		switch {
		case err == io.EOF || status.Code(err) == codes.Canceled:
			return
		case err != nil:
			text = fmt.Sprintf("stream ended: %v", status.Convert(err))
		case m.GetArbitration() != nil:
			a := m.GetArbitration()
			text = fmt.Sprintf("arbitration: %v, primary's election id %d",
				codes.Code(a.Status.Code), a.ElectionId.GetLow())
		default:
			text = w.text(m)
		}
		w.mu.Lock()
		w.messages = append(w.messages, name+" <- "+strings.ReplaceAll(strings.TrimSpace(text),
			"\n", "\n  "))
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// heard waits until no more messages arrive on the streams, and returns the messages by controller.
func (w *world) heard() string {
	for n := -1; ; {
		time.Sleep(20 * time.Millisecond)
		w.mu.Lock()
		if len(w.messages) == n {
			break // keep the lock, which is still held
		}
		n = len(w.messages)
		w.mu.Unlock()
	}
	defer w.mu.Unlock()
	got := w.messages
	w.messages = nil
	slices.SortStableFunc(got, func(a, b string) int {
		return strings.Compare(strings.SplitN(a, " ", 2)[0], strings.SplitN(b, " ", 2)[0])
	})
	if len(got) == 0 {
		return ""
	}
	return strings.Join(got, "\n") + "\n"
}

func (w *world) push(ctx context.Context, c *controller, action, p4info, config string,
	cookie uint64) string {
	cfg := &p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.program,
		Cookie: &p4v1.ForwardingPipelineConfig_Cookie{Cookie: cookie}}
	switch p4info {
	case "none":
		cfg.P4Info = nil
	case "other": // another program's P4Info, which has a wider key
		cfg.P4Info = proto.CloneOf(w.info)
		cfg.P4Info.Tables[0].MatchFields[0].Bitwidth++
	}
	switch config {
	case "none":
		cfg = nil
	case "broken":
		cfg.P4DeviceConfig = w.program[:len(w.program)/2]
	}
	_, err := w.rpc.SetForwardingPipelineConfig(ctx,
		&p4v1.SetForwardingPipelineConfigRequest{DeviceId: 1, Role: c.role,
			ElectionId: &p4v1.Uint128{Low: c.election},
			Action: p4v1.SetForwardingPipelineConfigRequest_Action(
				p4v1.SetForwardingPipelineConfigRequest_Action_value[action]), Config: cfg})
	return w.outcome(err)
}

func (w *world) read(ctx context.Context, req *p4v1.ReadRequest) string {
	stream, err := w.rpc.Read(ctx, req)
	if err != nil {
		return w.outcome(err)
	}
	var lines []string
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return strings.Join(append(lines, w.outcome(err)), "")
		}
		for _, e := range r.Entities {
			lines = append(lines, w.text(e)+"\n")
		}
	}
	slices.Sort(lines) // the server may send entities in any order
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "")
}

// text returns a message as one line, with names instead of ids. Protobuf's text form deliberately
// varies its spaces from build to build, so text normalizes them.
func (w *world) text(m proto.Message) string {
	s := prototext.MarshalOptions{}.Format(m)
	s = idInAnswer.ReplaceAllStringFunc(s, func(f string) string {
		p := idInAnswer.FindStringSubmatch(f)
		id, _ := strconv.ParseUint(p[2], 10, 32)
		if name := w.names[uint32(id)]; name != "" {
			return p[1] + ": $" + name
		}
		return f
	})
	return strings.Join(strings.Fields(spaces.ReplaceAllString(s, ":")), " ")
}

var doubled = regexp.MustCompile(` {2,}`)

// outcome returns the status of an RPC, with the errors of a batch.
func (w *world) outcome(err error) string {
	if err == nil {
		return "ok\n"
	}
	st := status.Convert(err)
	named := func(s string) string {
		// Protobuf's text form varies its spaces.
		s = doubled.ReplaceAllString(s, " ")
		return number.ReplaceAllStringFunc(s, func(n string) string {
			id, _ := strconv.ParseUint(n, 10, 32)
			if name := w.names[uint32(id)]; name != "" {
				return "$" + name
			}
			return n
		})
	}
	out := fmt.Sprintf("%v: %s\n", st.Code(), named(st.Message()))
	for i, d := range st.Details() {
		if e, ok := d.(*p4v1.Error); ok {
			out += fmt.Sprintf("  %d: %v %s\n", i, codes.Code(e.CanonicalCode), named(e.Message))
		}
	}
	return out
}
