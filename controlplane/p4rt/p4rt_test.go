package p4rt_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// program is a P4Info with one table of each kind of key that these tests need.
const program = `
tables { preamble { id: 33554433 name: "In.route" alias: "route" }
  match_fields { id: 1 name: "ipv4_dst" bitwidth: 32 match_type: LPM }
  action_refs { id: 16777217 } action_refs { id: 16777218 } action_refs { id: 16777219 scope: DEFAULT_ONLY } size: 16 }
tables { preamble { id: 33554434 name: "In.acl" alias: "acl" }
  match_fields { id: 1 name: "port" bitwidth: 9 match_type: EXACT }
  match_fields { id: 2 name: "flags" bitwidth: 12 match_type: TERNARY }
  match_fields { id: 3 name: "udp_port" bitwidth: 16 match_type: RANGE }
  match_fields { id: 4 name: "vlan" bitwidth: 12 match_type: OPTIONAL }
  action_refs { id: 16777218 } size: 16 }
actions { preamble { id: 16777217 name: "In.forward" alias: "forward" }
  params { id: 1 name: "dst_mac" bitwidth: 48 } params { id: 2 name: "port" bitwidth: 9 } }
actions { preamble { id: 16777218 name: "In.drop" alias: "drop" } }
actions { preamble { id: 16777219 name: "In.no_route" alias: "no_route" } }
counters { preamble { id: 302055425 name: "In.seen" alias: "seen" } spec { unit: PACKETS } size: 8 }
registers { preamble { id: 369164289 name: "In.last" alias: "last" } type_spec { bitstring { bit { bitwidth: 20 } } } size: 4 }
controller_packet_metadata { preamble { id: 67108865 name: "packet_out" alias: "packet_out" }
  metadata { id: 1 name: "egress_port" bitwidth: 9 } metadata { id: 2 name: "submit" bitwidth: 1 } metadata { id: 3 name: "padding" bitwidth: 6 } }
controller_packet_metadata { preamble { id: 67108866 name: "packet_in" alias: "packet_in" }
  metadata { id: 7 name: "ingress_port" bitwidth: 9 } metadata { id: 8 name: "padding" bitwidth: 7 } }
`

func pipeline(t *testing.T, config string) *p4rt.Pipeline {
	t.Helper()
	info, err := p4rt.ParseInfo([]byte(program))
	if err != nil {
		t.Fatal(err)
	}
	p, err := p4rt.NewPipeline(info, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func start(t *testing.T, s *p4rttest.Server) *p4rttest.Server {
	t.Helper()
	s.DeviceID = 1
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// follower records the states of a client.
type follower struct {
	mu      sync.Mutex
	states  []p4rt.State
	packets chan p4rt.PacketIn
}

func (f *follower) handler() p4rt.Handler {
	f.packets = make(chan p4rt.PacketIn, 16)
	return p4rt.Handler{
		StateChanged: func(s p4rt.State) { f.mu.Lock(); f.states = append(f.states, s); f.mu.Unlock() },
		PacketIn:     func(p p4rt.PacketIn) { f.packets <- p },
	}
}

func connect(t *testing.T, s *p4rttest.Server, id uint64, f *follower) *p4rt.Client {
	t.Helper()
	c, err := p4rt.New(p4rt.Options{
		Name: "s1", Target: s.Addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: id}, Info: pipeline(t, "{}").Info,
		MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, BatchSize: 3,
	}, f.handler())
	if err != nil {
		t.Fatal(err)
	}
	runClient(t, c)
	return c
}

func runClient(t testing.TB, c *p4rt.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, 10*time.Second, what, ok)
}

func primary(c *p4rt.Client) func() bool {
	return func() bool { return c.State().Phase == p4rt.Primary }
}

func TestArbitration(t *testing.T) {
	s := start(t, &p4rttest.Server{})
	var f1, f2, f3 follower
	c1 := connect(t, s, 10, &f1)
	wait(t, "the first is primary", primary(c1))
	c2 := connect(t, s, 20, &f2)
	wait(t, "the second is primary", primary(c2))
	wait(t, "the first is backup and knows who is primary", func() bool {
		return c1.State().Phase == p4rt.Backup && c1.State().Primary == p4rt.ElectionID{Low: 20}
	})
	if err := c1.Write(t.Context(), p4rt.Insert(&v1.Entity{})); !errors.Is(err, p4rt.ErrNotPrimary) {
		t.Errorf("a backup's write: %v", err)
	}
	if err := c1.PacketOut(nil, nil); !errors.Is(err, p4rt.ErrNotPrimary) {
		t.Errorf("a backup's packet: %v", err)
	}
	c3 := connect(t, s, 20, &f3)
	wait(t, "a third with the same id is refused", func() bool {
		return c3.State().Err != nil && strings.Contains(c3.State().Err.Error(), "same election id 20")
	})
}

// TestLateRequest: a late request of an abandoned stream is refused, because the next stream has a
// higher election id.
func TestLateRequest(t *testing.T) {
	s := start(t, &p4rttest.Server{})
	var f follower
	c := connect(t, s, 10, &f)
	wait(t, "it is primary", primary(c))
	s.BreakStreams()
	wait(t, "it is primary again", func() bool { return primary(c)() && c.State().Stream == 2 })
	if got, want := c.State().Primary, (p4rt.ElectionID{Low: 11}); got != want {
		t.Errorf("its second stream has the election id %v, want %v", got, want)
	}
	_, err := s.Write(t.Context(), &v1.WriteRequest{DeviceId: 1, ElectionId: &v1.Uint128{Low: 10}})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a request of the first stream: %v", err)
	}
	if _, err := s.Write(t.Context(), &v1.WriteRequest{DeviceId: 1,
		ElectionId: &v1.Uint128{Low: 11}}); status.Code(err) == codes.PermissionDenied {
		t.Errorf("a request of the second stream: %v", err)
	}
}

func TestWrongDevice(t *testing.T) {
	s := start(t, &p4rttest.Server{})
	s.DeviceID = 2
	var f follower
	c := connect(t, s, 1, &f)
	wait(t, "the device is refused", func() bool {
		return c.State().Err != nil && strings.Contains(c.State().Err.Error(), "has no device with id 1 (check deviceId")
	})
}

func TestReconnect(t *testing.T) {
	s := start(t, &p4rttest.Server{})
	var f follower
	c := connect(t, s, 10, &f)
	wait(t, "connected", primary(c))
	s.BreakStreams()
	wait(t, "connected again", func() bool { return c.State().Phase == p4rt.Primary && c.State().Stream == 2 })
	s.Stop()
	wait(t, "not connected", func() bool { return c.State().Phase == p4rt.Disconnected })
	if err := c.PacketOut(nil, nil); err == nil || !strings.Contains(err.Error(), "not connected") {
		t.Errorf("a packet without a connection: %v", err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "connected once more", func() bool { return c.State().Phase == p4rt.Primary && c.State().Stream == 3 })
	f.mu.Lock()
	defer f.mu.Unlock()
	var phases []string
	for _, st := range f.states {
		// the reason may change within one phase
		if p := fmt.Sprintf("%v %d", st.Phase, st.Stream); len(phases) == 0 || phases[len(phases)-1] != p {
			phases = append(phases, p)
		}
	}
	want := []string{"primary 1", "disconnected 1", "primary 2", "disconnected 2", "primary 3"}
	if !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

func TestPipeline(t *testing.T) {
	for _, pi := range []bool{false, true} {
		t.Run(fmt.Sprintf("PI=%v", pi), func(t *testing.T) {
			s := start(t, &p4rttest.Server{PI: pi})
			var f follower
			c := connect(t, s, 10, &f)
			wait(t, "connected", primary(c))
			p := pipeline(t, `{"v":1}`)
			ensure := func(p *p4rt.Pipeline, want p4rt.Pushed) {
				t.Helper()
				if got, err := c.EnsurePipeline(t.Context(), p); err != nil || got != want {
					t.Fatalf("EnsurePipeline: %v, %v; want %v", got, err, want)
				}
			}
			if cookie, err := c.Cookie(t.Context()); err != nil || cookie != 0 {
				t.Errorf("cookie without a pipeline: %d, %v", cookie, err)
			}
			ensure(p, p4rt.Committed)
			ensure(p, p4rt.Kept)
			if got := string(s.DeviceConfig()); got != `{"v":1}` {
				t.Errorf("the switch got the program %s", got)
			}
			insertRoute(t, c, "10.0.0.0", 8, 1)
			if pi { // PI cannot reconcile, so the client loads the program again
				ensure(pipeline(t, `{"v":2}`), p4rt.Committed)
			} else {
				ensure(pipeline(t, `{"v":2}`), p4rt.Reconciled)
			}
			if got, want := len(s.Entries()) == 0, pi; got != want {
				t.Errorf("entries lost: %v, want %v", got, want)
			}
		})
	}
	if _, err := p4rt.NewPipeline(pipeline(t, "{}").Info, []byte("\x7fELF")); err == nil {
		t.Error("a program that is no JSON was taken")
	}
	if pipeline(t, `{"v":1}`).Cookie == pipeline(t, `{"v":2}`).Cookie {
		t.Error("two programs have the same cookie")
	}
}

func route(addr string, prefix int, port uint32) p4rt.Entry {
	return p4rt.Entry{
		Table: "route", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(netip.MustParseAddr(addr), prefix)},
		Action: "forward", Params: p4rt.Params{"dst_mac": net.HardwareAddr{2, 0, 0, 0, 0, 1}, "port": port},
	}
}

func encode(t *testing.T, c *p4rt.Client, e p4rt.Entry) *v1.TableEntry {
	t.Helper()
	te, err := c.Info().Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return te
}

func insertRoute(t *testing.T, c *p4rt.Client, addr string, prefix int, port uint32) {
	t.Helper()
	if err := c.Write(t.Context(), p4rt.Insert(p4rt.EntryEntity(encode(t, c, route(addr, prefix, port))))); err != nil {
		t.Fatal(err)
	}
}

func connected(t *testing.T, s *p4rttest.Server) *p4rt.Client {
	t.Helper()
	start(t, s)
	var f follower
	c := connect(t, s, 10, &f)
	wait(t, "connected", primary(c))
	if _, err := c.EnsurePipeline(t.Context(), pipeline(t, "{}")); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWriteErrors(t *testing.T) {
	s := &p4rttest.Server{Refuse: func(u *v1.Update) error {
		te := u.Entity.GetTableEntry()
		if string(te.GetMatch()[0].GetLpm().GetValue()) == "\x0a\x00\x00\x05" {
			return status.Error(codes.ResourceExhausted, "table is full")
		}
		return nil
	}}
	c := connected(t, s)
	insertRoute(t, c, "10.0.0.2", 32, 1)
	var updates []*v1.Update
	for n := 1; n <= 7; n++ {
		updates = append(updates, p4rt.Insert(p4rt.EntryEntity(encode(t, c, route(fmt.Sprintf("10.0.0.%d", n), 32, uint32(n))))))
	}
	err := c.Write(t.Context(), updates...)
	var we *p4rt.WriteError
	if !errors.As(err, &we) || len(we.Updates) != 2 || we.Updates[0].Index != 1 || we.Updates[1].Index != 4 ||
		we.Code() != codes.Unknown {
		t.Fatalf("%#v", err)
	}
	want := "s1 refused 2 of 7 updates: INSERT route ipv4_dst=10.0.0.2/32 -> forward(dst_mac=02:00:00:00:00:01, port=0x02): AlreadyExists " +
		"(Match entry exists, use MODIFY if you wish to change action); INSERT route ipv4_dst=10.0.0.5/32 -> forward(dst_mac=02:00:00:00:00:01, port=0x05): " +
		"ResourceExhausted (table is full)"
	if err.Error() != want {
		t.Errorf("%s\nwant\n%s", err, want)
	}
	if got := s.Batches()[1:]; !slices.Equal(got, []int{3, 3, 1}) {
		t.Errorf("batches %v", got)
	}
	if n := len(s.Entries()); n != 6 {
		t.Errorf("%d entries: the others of the batch should have been made", n)
	}
}

func TestDiff(t *testing.T) {
	for _, pi := range []bool{false, true} {
		t.Run(fmt.Sprintf("PI=%v", pi), func(t *testing.T) {
			c := connected(t, &p4rttest.Server{PI: pi})
			insertRoute(t, c, "10.0.0.1", 32, 1)
			insertRoute(t, c, "10.0.0.2", 32, 2)
			insertRoute(t, c, "10.0.0.3", 32, 3)
			have, err := c.ReadTable(t.Context(), "route")
			if err != nil || len(have) != 3 {
				t.Fatal(have, err)
			}
			var want []*v1.TableEntry
			for _, e := range []p4rt.Entry{route("10.0.0.1", 32, 1), route("10.0.0.2", 32, 7), route("10.0.0.4", 32, 4)} {
				want = append(want, encode(t, c, e))
			}
			updates := p4rt.DiffEntries(have, want)
			var got []string
			for _, u := range updates {
				got = append(got, p4rt.Describe(c.Info(), u))
			}
			expected := []string{
				"MODIFY route ipv4_dst=10.0.0.2/32 -> forward(dst_mac=02:00:00:00:00:01, port=0x07)",
				"INSERT route ipv4_dst=10.0.0.4/32 -> forward(dst_mac=02:00:00:00:00:01, port=0x04)",
				"DELETE route ipv4_dst=10.0.0.3/32",
			}
			if !slices.Equal(got, expected) {
				t.Errorf("%q", got)
			}
			if err := c.Write(t.Context(), updates...); err != nil {
				t.Fatal(err)
			}
			if have, err = c.ReadTable(t.Context(), "route"); err != nil || len(p4rt.DiffEntries(have, want)) != 0 {
				t.Errorf("still different: %v, %v", have, err)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	c := connected(t, &p4rttest.Server{})
	want := []p4rt.Group{
		{ID: 5, Replicas: []p4rt.Replica{{Port: 2, Instance: 1}, {Port: 2, Instance: 2}}},
		{ID: 6, Replicas: []p4rt.Replica{{Port: 510, Instance: 2}}},
	}
	change, remove, err := p4rt.DiffGroups([]p4rt.Group{{ID: 9}}, want)
	if err != nil || len(change) != 2 || len(remove) != 1 {
		t.Fatal(change, remove, err)
	}
	if err := c.Write(t.Context(), change...); err != nil {
		t.Fatal(err)
	}
	have, err := c.ReadGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if change, remove, err := p4rt.DiffGroups(have, want); err != nil || len(change)+len(remove) != 0 {
		t.Errorf("%v %v %v after writing", change, remove, err)
	}
	change, _, _ = p4rt.DiffGroups(have, []p4rt.Group{{ID: 5, Replicas: []p4rt.Replica{{Port: 3, Instance: 1}}},
		want[1]})
	if len(change) != 1 || change[0].Type != v1.Update_MODIFY {
		t.Errorf("a changed group: %v", change)
	}
	if _, err := p4rt.EncodeGroup(p4rt.Group{ID: 1, Replicas: []p4rt.Replica{{Port: 1}, {Port: 1}}}); err == nil {
		t.Error("the same replica twice was taken")
	}
}

func TestCountersAndRegisters(t *testing.T) {
	s := &p4rttest.Server{}
	c := connected(t, s)
	s.SetCounter(302055425, 3, 33)
	all, err := c.ReadCounter(t.Context(), "seen")
	if err != nil || len(all) != 8 || all[3].Packets != 33 || all[4].Packets != 0 {
		t.Error(all, err)
	}
	some, err := c.ReadCounterCells(t.Context(), "seen", []int{4, 3})
	if err != nil || some[0].Packets != 0 || some[1].Packets != 33 {
		t.Error(some, err)
	}
	if err := c.WriteRegister(t.Context(), "last", 2, 0x12345); err != nil {
		t.Error(err)
	}
	if v, err := c.ReadRegister(t.Context(), "last", 2); err != nil || v.Uint64() != 0x12345 {
		t.Error(v, err)
	}
	if err := c.WriteRegister(t.Context(), "last", 2, 1<<20); err == nil {
		t.Error("a register took 21 bits of 20")
	}
	if _, err := c.ReadRegister(t.Context(), "last", 4); err == nil {
		t.Error("a cell beyond the register was read")
	}
	pi := connected(t, &p4rttest.Server{PI: true})
	if _, err := pi.ReadRegister(t.Context(), "last", 0); !p4rt.IsUnsupported(err) {
		t.Errorf("%v: want unsupported", err)
	}
	if err := pi.WriteRegister(t.Context(), "last", 0, 1); !p4rt.IsUnsupported(err) {
		t.Errorf("%v: want unsupported", err)
	}
}

func TestPackets(t *testing.T) {
	out := make(chan *v1.PacketOut, 1)
	s := start(t, &p4rttest.Server{PacketOut: func(p *v1.PacketOut) { out <- p }})
	var f follower
	c := connect(t, s, 10, &f)
	wait(t, "connected", primary(c))
	if err := c.PacketOut([]byte("hello"), map[string]uint64{"egress_port": 300, "submit": 1}); err != nil {
		t.Fatal(err)
	}
	p := <-out
	if string(p.Payload) != "hello" || len(p.Metadata) != 3 || string(p.Metadata[0].Value) != "\x01\x2c" ||
		string(p.Metadata[2].Value) != "\x00" {
		t.Errorf("packet-out %v", p)
	}
	if err := c.PacketOut(nil, map[string]uint64{"port": 1}); err == nil || !strings.Contains(err.Error(), "no field port") {
		t.Error(err)
	}
	if err := c.PacketOut(nil, map[string]uint64{"egress_port": 512}); err == nil {
		t.Error("port 512 fitted in 9 bits")
	}
	if err := s.PacketIn(&v1.PacketIn{Payload: []byte("x"), Metadata: []*v1.PacketMetadata{{MetadataId: 7,
		Value: []byte{0, 1, 44}}}}); err != nil {
		t.Fatal(err)
	}
	if in := <-f.packets; string(in.Payload) != "x" || in.Metadata["ingress_port"] != 300 {
		t.Errorf("packet-in %v", in)
	}
}

// TestEncode checks which entries are refused, and the error messages.
func TestEncode(t *testing.T) {
	info := pipeline(t, "{}").Info
	acl := func(change func(*p4rt.Entry)) p4rt.Entry {
		e := p4rt.Entry{Table: "acl", Priority: 5, Action: "drop", Match: p4rt.Match{
			"port": p4rt.Exact(1), "flags": p4rt.Ternary(0xFFF, 0x0F0), "udp_port": p4rt.Range(1, 1024), "vlan": p4rt.Optional(7)}}
		change(&e)
		return e
	}
	for _, c := range []struct {
		name  string
		entry p4rt.Entry
		want  string // part of the error, or "= " and the decoded entry
	}{
		{"all kinds", acl(func(e *p4rt.Entry) {}), "= acl flags=0xf0&0xf0 port=0x01 udp_port=0x01..0x0400 vlan=0x07 priority=5 -> drop()"},
		{"don't care", acl(func(e *p4rt.Entry) { e.Match = p4rt.Match{"port": p4rt.Exact(1), "flags": p4rt.Ternary(1, 0)} }), "= acl port=0x01 priority=5 -> drop()"},
		{"host bits are cut", route("10.1.2.3", 12, 1), "= route ipv4_dst=10.0.0.0/12 -> forward(dst_mac=02:00:00:00:00:01, port=0x01)"},
		{"prefix 0", route("10.1.2.3", 0, 1), "= route -> forward(dst_mac=02:00:00:00:00:01, port=0x01)"},
		{"default", p4rt.Entry{Table: "route", Default: true, Action: "no_route"}, "= route default -> no_route()"},
		{"default restored", p4rt.Entry{Table: "route", Default: true}, "= route default"},
		{"full name", p4rt.Entry{Table: "In.route", Action: "In.drop"}, "= route -> drop()"},
		{"unknown table", p4rt.Entry{Table: "routes"}, `no table "routes"; it has: acl, route`},
		{"unknown action", p4rt.Entry{Table: "route", Action: "fly"}, `no action "fly"; it has: drop, forward, no_route`},
		{"no action", p4rt.Entry{Table: "route"}, "has no action"},
		{"another table's action", acl(func(e *p4rt.Entry) { e.Action = "forward" }), "no action forward"},
		{"default only", p4rt.Entry{Table: "route", Action: "no_route"}, "for the default entry only"},
		{"unknown field", acl(func(e *p4rt.Entry) { e.Match["prt"] = p4rt.Exact(1) }), "no match field prt; it has: port, flags, udp_port, vlan"},
		{"exact missing", acl(func(e *p4rt.Entry) { delete(e.Match, "port") }), "exact match field port is missing"},
		{"too wide", acl(func(e *p4rt.Entry) { e.Match["port"] = p4rt.Exact(512) }), "match field port: 0x0200 needs 10 bits, but the field has 9"},
		{"wrong kind", acl(func(e *p4rt.Entry) { e.Match["port"] = p4rt.LPM(1, 9) }), "kind LPM given for a field of kind EXACT"},
		{"empty range", acl(func(e *p4rt.Entry) { e.Match["udp_port"] = p4rt.Range(300, 2) }), "low bound 0x012c is above"},
		{"no priority", acl(func(e *p4rt.Entry) { e.Priority = 0 }), "need a priority above 0"},
		{"priority", func() p4rt.Entry { e := route("10.0.0.1", 32, 1); e.Priority = 1; return e }(), "no priority"},
		{"long prefix", route("10.0.0.1", 33, 1), "a prefix of 33 bits"},
		{"parameter missing", p4rt.Entry{Table: "route", Action: "forward", Params: p4rt.Params{"port": 1}}, "parameter dst_mac is missing"},
		{"parameter unknown", p4rt.Entry{Table: "route", Action: "drop", Params: p4rt.Params{"port": 1}}, "no parameter port"},
		{"parameter too wide", route("10.0.0.1", 32, 600), "parameter port: 0x0258 needs 10 bits"},
		{"negative", acl(func(e *p4rt.Entry) { e.Match["port"] = p4rt.Exact(-1) }), "-1 is negative"},
		{"IPv6", p4rt.Entry{Table: "route", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(netip.MustParseAddr("::1"), 32)}, Action: "drop"}, "not an IPv4 address"},
		{"default with match", p4rt.Entry{Table: "route", Default: true, Match: p4rt.Match{"ipv4_dst": p4rt.LPM(1, 1)}}, "neither a match nor"},
	} {
		te, err := info.Encode(c.entry)
		var got string
		if err != nil {
			got = err.Error()
		} else if d, err := info.Decode(te); err != nil {
			got = "decoding: " + err.Error()
		} else {
			got = "= " + d.String()
		}
		if strings.HasPrefix(c.want, "= ") && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestParseInfo(t *testing.T) {
	for _, bad := range []string{"tables {", "\x00\x01\x02", `actions { preamble { id: 1 } }`,
		`actions { preamble { id: 1 name: "a" } } actions { preamble { id: 1 name: "b" } }`,
		`tables { preamble { id: 1 name: "t" } action_refs { id: 9 } }`} {
		if _, err := p4rt.ParseInfo([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a P4Info", bad)
		}
	}
}
