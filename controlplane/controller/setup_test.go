package controller_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// These tests use switches that are P4Runtime servers without a data plane. The servers need no
// root, and can be made to fail. The controller's packets get no answer, except requests for a
// session's record. So the chain has no leases.

// fakes is a line of three switches without a data plane.
type fakes struct {
	t       *testing.T
	servers []*p4rttest.Server
	info    *p4rt.Info
	file    string
	store   saved.Store
}

func newFakes(t *testing.T, change func(topology map[string]any)) *fakes {
	t.Helper()
	return newFakesTLS(t, nil, change)
}

// newFakesTLS is newFakes with TLS at the switches if conf is not nil.
func newFakesTLS(t *testing.T, conf *tls.Config, change func(topology map[string]any)) *fakes {
	t.Helper()
	f := &fakes{t: t, store: saved.File(filepath.Join(t.TempDir(), "state.json"))}
	compiled, err := filepath.Abs("../../p4src/compiled/netcraq-128")
	if err != nil {
		t.Fatal(err)
	}
	if f.info, err = p4rt.LoadInfo(compiled + ".p4info.txtpb"); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	var switches []m
	for i := 1; i <= 3; i++ {
		s := &p4rttest.Server{DeviceID: uint64(i), TLS: conf}
		answering(s, records)
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		f.servers = append(f.servers, s)
		switches = append(switches, m{"name": fmt.Sprintf("s%d", i), "p4runtime": s.Addr, "deviceId": i, "address": fmt.Sprintf("10.0.255.%d", i)})
	}
	top := m{
		"program":  m{"json": compiled + ".json.gz", "p4info": compiled + ".p4info.txtpb"},
		"switches": switches,
		"links":    [][]string{{"s1:2", "s2:2"}, {"s2:3", "s3:2"}},
		"hosts":    []m{{"name": "h1", "ip": "10.0.0.1", "mac": "02:00:00:00:00:01", "port": "s1:1"}},
		"chains":   []m{{"id": 0, "name": "main", "address": "10.0.254.1", "members": []string{"s1", "s2", "s3"}, "leaseMillis": 0, "patienceMillis": 0}},
	}
	if change != nil {
		change(top)
	}
	b, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	f.file = filepath.Join(t.TempDir(), "net.json")
	if err := os.WriteFile(f.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// answering makes a switch reply to the controller's packets. reply returns nil if there is no
// reply.
func answering(s *p4rttest.Server, reply func(wire.Packet) *wire.Packet) {
	s.PacketOut = func(out *v1.PacketOut) {
		f, payload, err := wire.ParseFrame(out.Payload)
		var p wire.Packet
		if err != nil || p.Unmarshal(payload, wire.Profile(128)) != nil {
			return
		}
		r := reply(p)
		if r == nil {
			return
		}
		b, err := r.Marshal(wire.Profile(128))
		if err != nil {
			panic(err)
		}
		from := wire.Frame{Src: netip.AddrPortFrom(f.Dst.Addr(), wire.Port), Dst: f.Src}
		if b, err = from.AppendTo(nil, b); err != nil {
			panic(err)
		}
		go s.PacketIn(&v1.PacketIn{Payload: b, Metadata: []*v1.PacketMetadata{{MetadataId: 1,
			Value: binary.BigEndian.AppendUint16(nil, 510)}}})
	}
}

// records answers a FETCH of a session's record as a session without requests.
func records(p wire.Packet) *wire.Packet {
	if p.Op != wire.Fetch || p.Flags&wire.Session == 0 {
		return nil
	}
	p.Op, p.Flags, p.Status, p.Request = wire.FetchReply, 0, wire.OK, 0
	return &p
}

// start runs a controller until stop is called.
func (f *fakes) start() (c *controller.Controller, stop func()) {
	f.t.Helper()
	top, err := topology.Load(f.file)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err = controller.New(controller.Options{Topology: top, Store: f.store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	f.t.Cleanup(stop)
	return c, stop
}

func ready(t *testing.T, c *controller.Controller) {
	t.Helper()
	poll.Nil(t, 20*time.Second, "the controller is ready", func() error { return c.Ready(t.Context()) }, func() string { return eventText(c) })
}

func eventText(c *controller.Controller) string {
	var b strings.Builder
	events, _ := c.Events(0)
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s: %s\n", e.Type, e.Switch, e.Message)
	}
	return b.String()
}

// primary waits until a client is the primary client of its switch.
func primary(t *testing.T, c *p4rt.Client) {
	t.Helper()
	poll.Until(t, 20*time.Second, "a client is the switch's primary one", func() bool { return c.State().Phase == p4rt.Primary },
		func() string { return fmt.Sprint(c.State().Err) })
}

// waitText waits for an event of the given kind whose message contains text.
func waitText(t *testing.T, c *controller.Controller, kind, text string) {
	t.Helper()
	until(t, c, fmt.Sprintf("an event %s with %q", kind, text), func() bool {
		events, _ := c.Events(0)
		return slices.ContainsFunc(events, func(e admin.Event) bool {
			return e.Type == kind && strings.Contains(e.Message, text)
		})
	})
}

// tables returns a switch's entries of some tables, as sorted text.
func (f *fakes) tables(server int, only ...string) []string {
	f.t.Helper()
	var out []string
	for _, te := range f.servers[server].Entries() {
		e, err := f.info.Decode(te)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(only) == 0 || slices.Contains(only, e.Table) {
			out = append(out, e.String())
		}
	}
	slices.Sort(out)
	return out
}

func (f *fakes) writes() int {
	n := 0
	for _, s := range f.servers {
		n += s.Writes()
	}
	return n
}

// TestIdempotent: a restarted controller writes nothing, with and without its saved state.
func TestIdempotent(t *testing.T) {
	for _, pi := range []bool{false, true} {
		f := newFakes(t, nil)
		for _, s := range f.servers {
			s.PI = pi
		}
		c, stop := f.start()
		ready(t, c)
		before := [][]string{f.tables(0), f.tables(1), f.tables(2)}
		// The entries are 2 ports, 2 local addresses, 4 routes (controller, 2 switches, 1 host),
		// and 1 chain with 2 peers and the default entry.
		if len(before[1]) != 12 {
			t.Fatalf("s2 has %d entries:\n%s", len(before[1]), strings.Join(before[1], "\n"))
		}
		stop()
		n := f.writes()
		for _, store := range []saved.Store{f.store, saved.Memory{}} {
			f.store = store
			c, stop = f.start()
			ready(t, c)
			stop()
			if got := f.writes(); got != n {
				t.Errorf("PI=%v, %T: %d updates were written to switches that had everything:\n%s", pi, store, got-n, eventText(c))
			}
			for i := range before {
				if after := f.tables(i); !slices.Equal(after, before[i]) {
					t.Errorf("PI=%v, %T: s%d has\n%s\nbefore\n%s", pi, store, i+1, strings.Join(after, "\n"), strings.Join(before[i], "\n"))
				}
			}
		}
	}
}

// newFakesAround makes a chain of s1 and s3, with two parallel switches s2 and s4 between them.
func newFakesAround(t *testing.T) *fakes {
	t.Helper()
	s4 := &p4rttest.Server{DeviceID: 4}
	answering(s4, records)
	if err := s4.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s4.Stop)
	f := newFakes(t, func(top map[string]any) {
		top["switches"] = append(top["switches"].([]map[string]any), map[string]any{"name": "s4",
			"p4runtime": s4.Addr, "deviceId": 4, "address": "10.0.255.4"})
		top["links"] = [][]string{{"s1:2", "s2:2"}, {"s2:3", "s3:2"}, {"s1:3", "s4:2"}, {"s4:3", "s3:3"}}
		top["chains"].([]map[string]any)[0]["members"] = []string{"s1", "s3"}
	})
	f.servers = append(f.servers, s4)
	return f
}

// TestNeverThere: routes also bypass a switch that died before the controller started and that no
// record names as avoided.
func TestNeverThere(t *testing.T) {
	f := newFakesAround(t)
	f.servers[1].Stop()
	c, _ := f.start()
	ready(t, c)
	waitText(t, c, "switch.avoided", "routes go around it")
	want := "chain_peer chain=0x00 ingress_port=0x03 -> peer(member=0x01, predecessor=0x01, tail=0x00)"
	poll.Until(t, 20*time.Second, "s3 takes writes by port 3", func() bool { return slices.Contains(f.tables(2, "chain_peer"), want) },
		func() string { return strings.Join(f.tables(2, "chain_peer"), "\n") })
}

// TestPeers: a switch accepts a chain's messages only at the ports where they arrive. This also
// holds if their path changes under a controller that found everything installed.
func TestPeers(t *testing.T) {
	f := newFakesAround(t)
	shows := func(server int, port, what string) func() bool {
		want := []string{"chain_peer chain=0x00 ingress_port=" + port + " -> peer(" + what + ")",
			"chain_peer default -> peer(member=0x00, predecessor=0x00, tail=0x00)"}
		return func() bool { return slices.Equal(f.tables(server, "chain_peer"), want) }
	}
	said := func(server int) func() string {
		return func() string { return strings.Join(f.tables(server, "chain_peer"), "\n") }
	}
	for range 2 {
		c, stop := f.start()
		ready(t, c)
		poll.Until(t, 20*time.Second, "s3 takes writes by port 2", shows(2, "0x02", "member=0x01, predecessor=0x01, tail=0x00"), said(2))
		poll.Until(t, 20*time.Second, "s1 takes what is committed by port 2", shows(0, "0x02", "member=0x01, predecessor=0x00, tail=0x01"), said(0))
		stop()
	}
	c, _ := f.start()
	ready(t, c)
	f.servers[1].Stop()
	poll.Until(t, 20*time.Second, "s3 takes writes by port 3", shows(2, "0x03", "member=0x01, predecessor=0x01, tail=0x00"), said(2))
	poll.Until(t, 20*time.Second, "s1 takes what is committed by port 3", shows(0, "0x03", "member=0x01, predecessor=0x00, tail=0x01"), said(0))
	poll.Until(t, 20*time.Second, "s4 passes both", func() bool {
		return slices.Equal(f.tables(3, "chain_peer")[:2], []string{
			"chain_peer chain=0x00 ingress_port=0x02 -> peer(member=0x01, predecessor=0x01, tail=0x00)",
			"chain_peer chain=0x00 ingress_port=0x03 -> peer(member=0x01, predecessor=0x00, tail=0x01)"})
	}, said(3))
}

// TestForeignEntries: the controller deletes entries that do not belong in a table, and restores
// entries that somebody changed.
func TestForeignEntries(t *testing.T) {
	f := newFakes(t, nil)
	c, stop := f.start()
	ready(t, c)
	stop()
	want := f.tables(1)
	// Another client changes entries while no controller runs. Its election id lies between those
	// of the previous controller and the next.
	now := p4rt.ElectionID{Low: uint64(time.Now().UnixNano())}
	meddler, err := p4rt.New(p4rt.Options{Name: "s2", Target: f.servers[1].Addr, DeviceID: 2, ElectionID: now,
		Info: f.info}, p4rt.Handler{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { meddler.Run(ctx); close(done) }()
	primary(t, meddler)
	update := func(make func(*v1.Entity) *v1.Update, e p4rt.Entry) *v1.Update {
		te, err := f.info.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return make(p4rt.EntryEntity(te))
	}
	err = meddler.Write(ctx,
		update(p4rt.Insert, p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(1)}, Action: "fabric_port"}),
		update(p4rt.Modify, p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(2)},
			Action: "host_port", Params: p4rt.Params{"principal": 9, "address": 0}}),
		update(p4rt.Insert, p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(0xC0000200, 24)}, Action: "no_route"}),
		update(p4rt.Insert, p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(0x0A00FF01)}, Action: "set_local"}),
		update(p4rt.Insert, p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(0x07000001)},
			Action: "set_slot", Params: p4rt.Params{"slot": 9, "realm": 9}}),
		update(p4rt.Insert, p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(0x00000001)},
			Action: "set_slot", Params: p4rt.Params{"slot": 9, "realm": 9}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	c, _ = f.start()
	ready(t, c)
	waitText(t, c, "keys.tidied", "dropped") // only one switch has an entry of the key, so that entry is deleted
	if got := f.tables(1); !slices.Equal(got, want) {
		t.Errorf("s2 has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMistakes: the controller reports each problem of a switch or a file. If it can repair the
// problem, it does so once the cause is gone.
func TestMistakes(t *testing.T) {
	t.Run("a switch is not there yet", func(t *testing.T) {
		f := newFakes(t, nil)
		f.servers[1].Stop()
		c, _ := f.start()
		waitText(t, c, "switch.unreachable", "trying again")
		waitText(t, c, "chain.waiting", "waiting for s2 to connect")
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "waiting for s2 to connect") {
			t.Error(err)
		}
		if err := f.servers[1].Start(); err != nil {
			t.Fatal(err)
		}
		ready(t, c)
	})
	t.Run("the wrong device", func(t *testing.T) {
		f := newFakes(t, nil)
		f.servers[2].DeviceID = 7
		c, _ := f.start()
		waitText(t, c, "switch.unreachable", "has no device with id 3 (check deviceId")
	})
	t.Run("a switch refuses an entry", func(t *testing.T) {
		f := newFakes(t, nil)
		var mu sync.Mutex
		refuse := true
		f.servers[1].Refuse = func(u *v1.Update) error {
			mu.Lock()
			defer mu.Unlock()
			if e, err := f.info.Decode(u.Entity.GetTableEntry()); refuse && err == nil && e.Table == "chain_config" {
				return status.Error(codes.ResourceExhausted, "table is full")
			}
			return nil
		}
		c, _ := f.start()
		waitText(t, c, "switch.refused", "table is full")
		if got := f.tables(0, "chain_config"); len(got) != 0 {
			t.Errorf("the head was installed before the switch behind it: %v", got)
		}
		mu.Lock()
		refuse = false
		mu.Unlock()
		ready(t, c)
	})
	t.Run("key_index is full", func(t *testing.T) {
		f := newFakes(t, nil)
		f.servers[1].Refuse = func(u *v1.Update) error {
			if e, err := f.info.Decode(u.Entity.GetTableEntry()); err == nil && e.Table == "key_index" {
				return status.Error(codes.ResourceExhausted, "table is full")
			}
			return nil
		}
		c, _ := f.start()
		ready(t, c)
		keys, err := c.AddKeys(t.Context(), "main", []admin.KeySpec{{Name: "a"}, {Name: "b"}})
		if err != nil || len(keys) != 2 || keys[0].Error == nil {
			t.Fatalf("%+v %v", keys, err)
		}
		if e := keys[0].Error; e.Code != admin.CodeResourceExhausted || !strings.Contains(e.Message, "table is full") {
			t.Error(e)
		}
		for i := range f.servers {
			if got := f.tables(i, "key_index"); len(got) != 0 {
				t.Errorf("s%d still has %v", i+1, got)
			}
		}
		if ch, err := c.Chain(t.Context(), "main"); err != nil || ch.Keys != 0 {
			t.Error(ch, err)
		}
	})
	t.Run("nobody answers the first write", func(t *testing.T) {
		f := newFakes(t, nil)
		c, _ := f.start()
		ready(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		keys, err := c.AddKeys(ctx, "main", []admin.KeySpec{{Name: "a"}})
		if err != nil || keys[0].Error == nil || keys[0].Error.Code != admin.CodeDeadlineExceeded {
			t.Errorf("%+v %v", keys, err)
		}
	})
	t.Run("another program is running", func(t *testing.T) {
		// The program's tables differ, so the program is replaced, and the controller uses nothing
		// of its content.
		f := newFakes(t, nil)
		other, err := p4rt.NewInfo(&configv1.P4Info{Actions: []*configv1.Action{{Preamble: &configv1.Preamble{Id: 1,
			Name: "a"}}}})
		if err != nil {
			t.Fatal(err)
		}
		pl, err := p4rt.NewPipeline(other, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		first, err := p4rt.New(p4rt.Options{Name: "s1", Target: f.servers[0].Addr, DeviceID: 1,
			ElectionID: p4rt.ElectionID{Low: 1}, Info: other}, p4rt.Handler{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go first.Run(ctx)
		primary(t, first)
		if _, err := first.EnsurePipeline(ctx, pl); err != nil {
			t.Fatal(err)
		}
		c, _ := f.start()
		ready(t, c)
		waitText(t, c, "switch.program-loaded", "committed")
	})
	small := func(m map[string]any) { m["chains"].([]map[string]any)[0]["members"] = []string{"s1", "s2"} }
	t.Run("a joiner that is too small", func(t *testing.T) {
		// The switch runs the program, but its key_index is too small for the chain's keys.
		f := newFakes(t, small)
		d, err := keyspace.New([]keyspace.Space{{Chain: 0, Count: 9}}, keyspace.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			k, err := d.Add(0, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			d.SetState(k.ID, keyspace.Placed)
		}
		if err := f.store.Save(&saved.State{Version: saved.Version,
			Directory: d.Snapshot()}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		room := 2
		f.servers[2].Refuse = func(u *v1.Update) error {
			mu.Lock()
			defer mu.Unlock()
			if e, err := f.info.Decode(u.Entity.GetTableEntry()); err == nil && e.Table == "key_index" &&
				u.Type == v1.Update_INSERT {
				if room--; room < 0 {
					return status.Error(codes.ResourceExhausted, "table is full")
				}
			}
			return nil
		}
		c, _ := f.start()
		ready(t, c)
		until(t, c, "s3 is ready", func() bool {
			all, err := c.Switches(t.Context())
			return err == nil && all[2].Ready
		})
		_, err = c.Recover(t.Context(), "main", "s3")
		if err == nil || !strings.Contains(err.Error(), "s3 cannot take the chain's 3 keys") || !strings.Contains(err.Error(), "table is full") {
			t.Error(err)
		}
		waitText(t, c, "chain.not-recovered", "table is full")
		ready(t, c)
		ch, err := c.Chain(t.Context(), "main")
		if err != nil || len(ch.Members) != 2 || ch.Frozen {
			t.Errorf("%+v, %v: want the chain as it was", ch, err)
		}
	})
	t.Run("a switch that cannot run the program", func(t *testing.T) {
		// The switch may, for example, be built for narrower values, or have too little memory for
		// the registers.
		f := newFakes(t, small)
		f.servers[2].RefuseProgram = func() error {
			return status.Error(codes.InvalidArgument, "register objects_store: 8192 bits in a cell, at most 128 here")
		}
		c, _ := f.start()
		ready(t, c) // the chain works without that switch
		waitText(t, c, "switch.not-set-up", "at most 128 here")
		if _, err := c.Recover(t.Context(), "main", "s3"); err == nil || !strings.Contains(err.Error(), "s3 is not connected, or does not run the program") {
			t.Error(err)
		}
		if sw, err := c.Switches(t.Context()); err != nil || sw[2].Ready || !strings.Contains(sw[2].LastError, "at most 128 here") {
			t.Errorf("%+v, %v", sw, err)
		}
	})
	t.Run("a switch whose errors are for a terminal", func(t *testing.T) {
		f := newFakes(t, small)
		f.servers[2].RefuseProgram = func() error {
			return status.Error(codes.InvalidArgument, "no:\x1b]0;title\a\r\n\u202eevil"+strings.Repeat("x", 1<<16))
		}
		c, _ := f.start()
		ready(t, c)
		waitText(t, c, "switch.not-set-up", "evil")
		texts := []string{}
		events, _ := c.Events(0)
		for _, e := range events {
			texts = append(texts, e.Message)
		}
		all, err := c.Switches(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(texts, all[2].LastError) {
			if len(text) > 8192 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%d bytes: %.100q", len(text), text)
			}
		}
	})
	t.Run("a switch is restarted", func(t *testing.T) {
		f := newFakes(t, nil)
		c, _ := f.start()
		ready(t, c)
		f.servers[1].Stop()
		waitText(t, c, "switch.disconnected", "trying again")
		f.servers[1].Forget()
		if err := f.servers[1].Start(); err != nil {
			t.Fatal(err)
		}
		waitText(t, c, "chain.reinstall", "holds no data")
		ready(t, c)
		if ch, err := c.Chain(t.Context(), "main"); err != nil || ch.Epoch != 2 {
			t.Error(ch, err)
		}
	})
	t.Run("the stream breaks", func(t *testing.T) {
		f := newFakes(t, nil)
		c, _ := f.start()
		ready(t, c)
		n := f.writes()
		f.servers[1].BreakStreams()
		waitText(t, c, "switch.disconnected", "s2")
		ready(t, c)
		if ch, err := c.Chain(t.Context(), "main"); err != nil || ch.Epoch != 1 || f.writes() != n {
			t.Errorf("%+v, %v, %d updates", ch, err, f.writes()-n)
		}
	})
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"no P4Info":       {func(m map[string]any) { m["program"].(map[string]any)["p4info"] = "/nowhere" }, "no such file"},
		"not a P4Info":    {func(m map[string]any) { m["program"].(map[string]any)["p4info"] = os.Args[0] }, "neither a P4Info in text form"},
		"not a program":   {func(m map[string]any) { m["program"].(map[string]any)["json"] = os.Args[0] }, "not JSON"},
		"another profile": {func(m map[string]any) { m["program"].(map[string]any)["profile"] = "8192" }, "holds values of 128 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, c.change)
			top, err := topology.Load(f.file)
			if err == nil {
				_, err = controller.New(controller.Options{Topology: top, Store: saved.Memory{},
					Log: slog.New(slog.DiscardHandler)})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestState: the file is replaced atomically, and a broken file is not treated as an empty file.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	f := saved.File(path)
	if s, err := f.Load(); s != nil || err != nil {
		t.Error(s, err)
	}
	if err := f.Save(&saved.State{Version: 1}); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Load(); s == nil || err != nil {
		t.Error(s, err)
	}
	for _, bad := range []string{"", "{", `{"version": 2}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Load(); err == nil {
			t.Errorf("%q was taken for a state", bad)
		}
	}
	// The keys are in a file of their own, which is written only when they change.
	keys := strings.TrimSuffix(path, ".json") + ".keys.json"
	d, err := keyspace.New([]keyspace.Space{{Chain: 1, Count: 9}}, keyspace.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	longAgo := time.Unix(1, 0)
	for _, name := range []string{"a", "", "b", ""} {
		if name != "" {
			if _, err := d.Add(1, name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(keys, longAgo, longAgo); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := f.Save(&saved.State{Version: 1, Directory: d.Snapshot(), Avoided: []string{name}}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(keys)
		if err != nil {
			t.Fatal(err)
		}
		if written := !info.ModTime().Equal(longAgo); written != (name != "") {
			t.Errorf("%s was written: %v, with the new key %q", keys, written, name)
		}
		s, err := saved.File(path).Load()
		if err != nil || len(s.Directory.Keys) != len(d.Chain(1)) || s.Avoided[0] != name {
			t.Fatal(s, err)
		}
	}
	// An earlier version stored the keys in the main file.
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"version":1,"chains":{},"directory":{"keys":[{"name":"old","id":16777217,"slot":2,"state":"placed"}],"next":{"1":2}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := saved.File(path).Load(); err != nil || len(s.Directory.Keys) != 1 ||
		s.Directory.Keys[0].Name != "old" {
		t.Error(s, err)
	}
	if err := saved.File("/nowhere/state.json").Save(&saved.State{}); err == nil {
		t.Error("a state was saved nowhere")
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 1 || err != nil {
		t.Error(left, err)
	}
}

// TestStateFiles: one of the two files may be lost, or replaced by an older copy. The store detects
// this, and does not treat the remaining state as complete.
func TestStateFiles(t *testing.T) {
	dir := t.TempDir()
	path, keys := filepath.Join(dir, "state.json"), filepath.Join(dir, "state.keys.json")
	d, err := keyspace.New([]keyspace.Space{{Chain: 0, Count: 9}}, keyspace.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	type files struct{ state, keys []byte }
	var images []files
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, name := range []string{"a", "b", "c"} {
		f := saved.File(path) // each store stands for another process
		if _, err := f.Load(); err != nil {
			t.Fatal(err)
		}
		k, err := d.Add(0, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.SetState(k.ID, keyspace.Placed)
		if err := f.Save(&saved.State{Version: 1, Directory: d.Snapshot(), Avoided: []string{name}}); err != nil {
			t.Fatal(err)
		}
		images = append(images, files{read(path), read(keys)})
	}
	last := len(images) - 1
	damaged := bytes.Replace(images[last].keys, []byte(`"slot":1`), []byte(`"slot":70000`), 1)
	top, err := topology.Load(newFakes(t, nil).file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		files
		keys int    // number of keys loaded
		lost bool   // everything but the directory was lost
		want string // part of the error
	}{
		{"both", images[last], 3, false, ""},
		{"no keys", files{images[last].state, nil}, 0, false, "has the names of the keys"},
		{"earlier keys", files{images[last].state, images[last-1].keys}, 0, false, "it was written 2 times, and that knows of 3"},
		{"keys of an earlier version", files{images[last].state, []byte(`{"keys":[],"next":{}}`)}, 0, false, "it was written 0 times"},
		// the process ended between the two writes
		{"later keys", files{images[last-1].state, images[last].keys}, 3, false, ""},
		{"only keys", files{nil, images[last].keys}, 3, true, ""},
		{"half the keys", files{images[last].state, images[last].keys[:40]}, 0, false, "Put the newest copy of it back"},
		{"a slot beyond the table", files{images[last].state, damaged}, 3, false, "in slot 70000, and the switches have the slots 0 to 65535"},
		{"a state that there is not", files{images[last].state, bytes.Replace(images[last].keys, []byte(`placed`), []byte(`plcaed`), 1)}, 3, false, "is damaged: it has a key"},
	} {
		for path, b := range map[string][]byte{path: c.files.state, keys: c.files.keys} {
			os.Remove(path)
			if b != nil {
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := saved.File(path).Load()
		if err == nil && (len(s.Directory.Keys) != c.keys || s.Lost != c.lost) {
			t.Errorf("%s: %+v", c.what, s)
		}
		if err == nil {
			_, err = controller.New(controller.Options{Topology: top, Store: saved.File(path),
				Log: slog.New(slog.DiscardHandler)})
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "ut the")) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// TestUnsavedState: a chain does not change while the change cannot be recorded.
func TestUnsavedState(t *testing.T) {
	f := newFakes(t, nil)
	store := &failingStore{}
	f.store = store
	c, _ := f.start()
	ready(t, c)
	store.set(errors.New("the disk is full"))
	frozen := true
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err == nil ||
		!strings.Contains(err.Error(), "the disk is full") {
		t.Error(err)
	}
	keys, err := c.AddKeys(t.Context(), "main", []admin.KeySpec{{Name: "a"}})
	if err != nil || keys[0].Error == nil || !strings.Contains(keys[0].Error.Message, "the disk is full") {
		t.Error(keys, err)
	}
	store.set(nil)
	if ch, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err != nil ||
		ch.Epoch != 2 || !ch.Frozen || ch.Keys != 0 {
		t.Error(ch, err)
	}
}

type failingStore struct {
	saved.Memory
	mu  sync.Mutex
	err error
}

func (s *failingStore) set(err error) { s.mu.Lock(); s.err = err; s.mu.Unlock() }

func (s *failingStore) Save(*saved.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// TestTLS: with the certificate files that the topology names, the controller connects to switches.
// Without them, or with another authority's, no switch accepts it.
func TestTLS(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	mine, _ := authority.Issue("controller", "")
	stranger, _ := testcerts.NewAuthority(t).Issue("stranger", "")
	certs, _ := authority.Issue("switch", "", "switch.example")
	certs.ClientCertAuth = true
	conf, err := certs.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, name string
		files      map[string]any
		works      bool
	}{
		{"its own certificate", "switch.example", map[string]any{"ca": authority.File, "cert": mine.CertFile, "key": mine.KeyFile}, true},
		{"no certificate", "switch.example", map[string]any{"ca": authority.File}, false},
		{"a stranger's", "switch.example", map[string]any{"ca": authority.File, "cert": stranger.CertFile, "key": stranger.KeyFile}, false},
		{"another server's name", "other.example", map[string]any{"ca": authority.File, "cert": mine.CertFile, "key": mine.KeyFile}, false},
		{"plain text", "", nil, false},
	} {
		f := newFakesTLS(t, conf, func(top map[string]any) {
			if c.files == nil {
				return
			}
			top["p4runtimeTLS"] = c.files
			for _, s := range top["switches"].([]map[string]any) {
				s["serverName"] = c.name
			}
		})
		ctl, stop := f.start()
		if c.works {
			ready(t, ctl)
		} else {
			waitText(t, ctl, "switch.unreachable", "")
		}
		if connected := strings.Contains(eventText(ctl), "switch.connected"); connected != c.works {
			t.Errorf("%s: connected: %v\n%s", c.what, connected, eventText(ctl))
		}
		stop()
	}
}
