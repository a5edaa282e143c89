package p4rt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	"github.com/netcraq/netcraq/switch/bmv2test"
)

// startTarget starts a real switch without ports, with more target options if any are given, and
// returns its P4Runtime address. embedded/ENGINE is netcraq-switch with that engine.
func startTarget(t testing.TB, target string, options ...string) string {
	t.Helper()
	target, engine, _ := strings.Cut(target, "/")
	binary := ""
	if target == "embedded" {
		binary = filepath.Join(t.TempDir(), "netcraq-switch")
		if out, err := exec.Command("go", "build", "-o", binary, "github.com/netcraq/netcraq/switch/cmd/netcraq-switch").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	} else {
		var err error
		if binary, err = exec.LookPath(target); err != nil {
			t.Skipf("skipped: %s is not on PATH", target)
		}
	}
	addr := testport.Free(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := bmv2test.ThriftFlags(t, binary, testport.Free(t))
	if engine != "" {
		args = append(args, "--engine", engine)
	}
	args = append(args, "--log-level", "warn", "--device-id", "1", "--no-p4", "--",
		"--grpc-server-addr", addr, "--cpu-port", "510")
	cmd := exec.Command(binary, append(args, options...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("%s says:\n%s", target, b)
		}
	})
	poll.Nil(t, 20*time.Second, target+" serves P4Runtime", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return addr
}

// payloads counts the bytes of received messages.
type payloads struct{ bytes atomic.Int64 }

// TagRPC implements stats.Handler.
func (p *payloads) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (p *payloads) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		p.bytes.Add(int64(in.Length))
	}
}

// TagConn implements stats.Handler.
func (p *payloads) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (p *payloads) HandleConn(context.Context, stats.ConnStats) {}

// TestTargets uses all functions of the client with real switches. All differences between targets
// are in this test.
func TestTargets(t *testing.T) {
	for _, target := range []string{"embedded", "simple_switch_grpc"} {
		t.Run(target, func(t *testing.T) {
			bmv2 := target != "embedded"
			compiled := filepath.Join("..", "..", "p4src", "compiled", "netcraq-128")
			pl, err := p4rt.LoadPipeline(compiled+".p4info.txtpb", compiled+".json.gz")
			if err != nil {
				t.Fatal(err)
			}
			var f follower
			var read payloads
			c, err := p4rt.New(p4rt.Options{Name: "s1", Target: startTarget(t, target), DeviceID: 1,
				ElectionID: p4rt.ElectionID{High: 1, Low: 2}, Info: pl.Info,
				DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithStatsHandler(&read)}}, f.handler())
			if err != nil {
				t.Fatal(err)
			}
			runClient(t, c)
			wait(t, "primary", primary(c))
			ctx := t.Context()
			fatal := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			ensure := func(p *p4rt.Pipeline, want p4rt.Pushed) {
				t.Helper()
				if got, err := c.EnsurePipeline(ctx, p); err != nil || got != want {
					t.Fatalf("EnsurePipeline: %v, %v; want %v", got, err, want)
				}
			}
			ensure(pl, p4rt.Committed)
			ensure(pl, p4rt.Kept)
			if cookie, err := c.Cookie(ctx); err != nil || cookie != pl.Cookie {
				t.Errorf("cookie %x, %v; want %x", cookie, err, pl.Cookie)
			}

			// Insert a thousand entries at once. Then insert an entry that exists, and delete one
			// that does not exist.
			slot := func(key, slot int) *v1.Entity {
				te, err := pl.Info.Encode(p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(key)}, Action: "set_slot",
					Params: p4rt.Params{"slot": slot, "realm": 1}})
				fatal(err)
				return p4rt.EntryEntity(te)
			}
			var updates []*v1.Update
			for i := range 1200 {
				updates = append(updates, p4rt.Insert(slot(i+1, i)))
			}
			fatal(c.Write(ctx, updates...))
			err = c.Write(ctx, p4rt.Insert(slot(7, 7)), p4rt.Modify(slot(8, 1200)), p4rt.Delete(slot(5000, 0)),
				p4rt.Delete(slot(9, 0)))
			var we *p4rt.WriteError
			if !errors.As(err, &we) || len(we.Updates) != 2 || we.Updates[0].Index != 0 ||
				we.Updates[0].Code != codes.AlreadyExists ||
				we.Updates[1].Index != 2 || we.Updates[1].Code != codes.NotFound || !strings.Contains(err.Error(), "INSERT key_index KEY_ID=0x07") {
				t.Errorf("%v", err)
			}
			entries, err := c.ReadTable(ctx, "key_index")
			if err != nil || len(entries) != 1199 {
				t.Fatalf("%d entries, %v", len(entries), err)
			}
			for _, te := range entries {
				e, err := pl.Info.Decode(te)
				fatal(err)
				want := e.Exact("KEY_ID").Uint64() - 1
				if want == 7 {
					want = 1200
				}
				if got := e.Param("slot").Uint64(); got != want {
					t.Errorf("%v, want slot %d", e, want)
				}
			}
			lpm, err := pl.Info.Encode(p4rt.Entry{Table: "ipv4_lpm",
				Match: p4rt.Match{"ipv4_dst": p4rt.LPM(netip.MustParseAddr("10.0.0.0"), 8)}, Action: "forward",
				Params: p4rt.Params{"dst_mac": net.HardwareAddr{0, 0, 0, 0, 0, 9}, "port": 300}})
			fatal(err)
			fatal(c.Write(ctx, p4rt.Insert(p4rt.EntryEntity(lpm))))
			if have, err := c.ReadTable(ctx, "ipv4_lpm"); err != nil ||
				len(p4rt.DiffEntries(have, []*v1.TableEntry{lpm})) != 0 {
				t.Errorf("%v %v", have, err)
			}

			// Change the default entry, and restore it.
			def := func(action string, params p4rt.Params) *v1.Update {
				te, err := pl.Info.Encode(p4rt.Entry{Table: "key_index", Default: true, Action: action, Params: params})
				fatal(err)
				return p4rt.Modify(p4rt.EntryEntity(te))
			}
			readDefault := func() (got string) {
				te, err := pl.Info.Encode(p4rt.Entry{Table: "key_index", Default: true})
				fatal(err)
				fatal(c.Read(ctx, func(e *v1.Entity) error {
					d, err := pl.Info.Decode(e.GetTableEntry())
					got = d.String()
					return err
				}, p4rt.EntryEntity(te)))
				return got
			}
			fatal(c.Write(ctx, def("backing_store", p4rt.Params{"addr": netip.MustParseAddr("10.9.9.9")})))
			if got := readDefault(); got != "key_index default -> backing_store(addr=10.9.9.9)" {
				t.Errorf("default entry: %s", got)
			}
			fatal(c.Write(ctx, def("", nil)))
			if got := readDefault(); got != "key_index default -> not_placed()" {
				t.Errorf("default entry, restored: %s", got)
			}
			if err := c.Write(ctx, p4rt.Insert(def("not_placed", nil).Entity)); err == nil {
				t.Error("a default entry was inserted")
			}

			// Insert groups, modify them (two replicas on one port), and remove them.
			groups := []p4rt.Group{{ID: 1, Replicas: []p4rt.Replica{{Port: 2, Instance: 1},
				{Port: 2, Instance: 2}}}, {ID: 511, Replicas: []p4rt.Replica{{Port: 510, Instance: 2}}}}
			for _, want := range [][]p4rt.Group{groups,
				{{ID: 1, Replicas: []p4rt.Replica{{Port: 3, Instance: 1}}}}, nil} {
				have, err := c.ReadGroups(ctx)
				fatal(err)
				change, remove, err := p4rt.DiffGroups(have, want)
				fatal(err)
				fatal(c.Write(ctx, append(change, remove...)...))
				have, err = c.ReadGroups(ctx)
				fatal(err)
				if change, remove, err := p4rt.DiffGroups(have, want); err != nil || len(change)+len(remove) != 0 {
					t.Errorf("groups %v, want %v (%v)", have, want, err)
				}
			}

			// Send a packet through the pipeline. The switch answers it and counts it.
			before, err := c.ReadCounterCells(ctx, "events", []int{23})
			fatal(err)
			reply := fetchSession(t, c, &f)
			if reply.Op != wire.FetchReply || reply.Session != 5 || reply.Request != 0 || reply.Status != wire.OK {
				t.Errorf("%v", reply)
			}
			after, err := c.ReadCounter(ctx, "events")
			if err != nil || len(after) != 64 || after[23].Packets != before[0].Packets+1 {
				t.Errorf("FETCHes counted: %v, then %v (%v)", before, after, err)
			}
			if all, err := c.ReadCounter(ctx, "slot_reads"); err != nil || len(all) != 65536 {
				t.Errorf("%d cells, %v", len(all), err)
			}

			// Write registers, if the target supports them.
			err = c.WriteRegister(ctx, "session_request", 5, 77)
			v, readErr := c.ReadRegister(ctx, "session_request", 5)
			if bmv2 {
				if !p4rt.IsUnsupported(err) || !p4rt.IsUnsupported(readErr) {
					t.Errorf("%v, %v; want unsupported", err, readErr)
				}
			} else if err != nil || readErr != nil || v.Uint64() != 77 {
				t.Errorf("%v, %v, %v", v, err, readErr)
			} else if r := fetchSession(t, c, &f); r.Request != 77 {
				t.Errorf("%v, want the request 77", r)
			} else {
				// The client reads a few cells one by one. If there are many, it reads the whole
				// register, and each cell must be in its place.
				wide, _, err := pl.Info.RegisterSize("versions")
				fatal(err)
				value := append([]byte{9, 8, 7, 6, 5, 4, 3, 2}, 0, 0, 0, 0, 0, 0, 1, 0)
				fatal(c.WriteRegister(ctx, "versions", wide-1, value))
				fatal(c.WriteRegister(ctx, "versions", 3, 3))
				for _, cells := range [][]int{{wide - 1, 0, 3}, upTo(100), {wide - 2, wide - 1, 2, 3, 4}, upTo(wide)} {
					got, err := c.ReadRegisterCells(ctx, "versions", cells)
					fatal(err)
					for n, i := range cells {
						want := map[int][]byte{3: {3}, wide - 1: value}[i]
						if want == nil {
							want = []byte{0}
						}
						if !bytes.Equal(got[n], want) {
							t.Fatalf("cell %d of versions is %x, want %x", i, got[n], want)
						}
					}
				}
				// On the second read, the switch sends only the changes.
				before := read.bytes.Load()
				fatal(c.WriteRegister(ctx, "versions", 4, 44))
				fatal(c.WriteRegister(ctx, "versions", 3, 0))
				got, err := c.ReadRegisterCells(ctx, "versions", upTo(wide))
				fatal(err)
				for i, v := range got {
					want := map[int][]byte{4: {44}, wide - 1: value}[i]
					if want == nil {
						want = []byte{0}
					}
					if !bytes.Equal(v, want) {
						t.Fatalf("cell %d of versions is %x after it was read again, want %x", i, v, want)
					}
				}
				if n := read.bytes.Load() - before; n > 1000 {
					t.Errorf("reading again what has two changes took %d bytes", n)
				}
				if _, err := c.ReadRegisterCells(ctx, "versions", []int{wide}); err == nil ||
					!strings.Contains(err.Error(), "has no cell") {
					t.Errorf("a cell beyond the register: %v", err)
				}
			}

			// Load another build of the program: the tables stay. (PI cannot reconcile a program
			// with counters, so it is loaded again.)
			other, err := p4rt.NewPipeline(pl.Info, append(slices.Clone(pl.DeviceConfig), '\n'))
			fatal(err)
			pushed, left := p4rt.Reconciled, 1199
			if bmv2 {
				pushed, left = p4rt.Committed, 0
			}
			ensure(other, pushed)
			ensure(other, p4rt.Kept)
			if entries, err := c.ReadTable(ctx, "key_index"); err != nil || len(entries) != left {
				t.Errorf("%d entries are left, %v; want %d", len(entries), err, left)
			}
			insertRoutes := p4rt.DiffEntries(nil, []*v1.TableEntry{lpm})
			if bmv2 {
				fatal(c.Write(ctx, insertRoutes...))
			}
			fetchSession(t, c, &f) // packets still pass the switch

			// A second controller has a higher id, and a third has the same id as the second. If PI
			// refused to reconcile, the first controller has raised its own id.
			higher := p4rt.ElectionID{High: 1, Low: c.State().Primary.Low + 1}
			var f2, f3 follower
			second, err := p4rt.New(p4rt.Options{Name: "s1", Target: c.Target(), DeviceID: 1,
				ElectionID: higher, Info: pl.Info}, f2.handler())
			fatal(err)
			runClient(t, second)
			wait(t, "the second is primary", primary(second))
			wait(t, "the first knows it", func() bool {
				return c.State().Phase == p4rt.Backup && c.State().Primary == higher
			})
			if err := c.Write(ctx, p4rt.Delete(slot(10, 0))); !errors.Is(err, p4rt.ErrNotPrimary) {
				t.Errorf("a backup's write: %v", err)
			}
			if entries, err := c.ReadTable(ctx, "ipv4_lpm"); err != nil || len(entries) != 1 {
				t.Errorf("a backup may read: %d entries, %v", len(entries), err)
			}
			third, err := p4rt.New(p4rt.Options{Name: "s1", Target: c.Target(), DeviceID: 1,
				ElectionID: higher, Info: pl.Info}, f3.handler())
			fatal(err)
			runClient(t, third)
			wait(t, "a third with the same id is refused", func() bool {
				return third.State().Err != nil && strings.Contains(third.State().Err.Error(), "same election id")
			})
		})
	}
}

// upTo returns 0 to n-1.
func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// fetchSession reads the record of session 5.
func fetchSession(t *testing.T, c *p4rt.Client, f *follower) *wire.Packet {
	t.Helper()
	p := &wire.Packet{Op: wire.Fetch, Flags: wire.Session, Session: 5}
	payload, err := p.Marshal(wire.Profile128)
	if err != nil {
		t.Fatal(err)
	}
	frame := wire.Frame{Src: netip.MustParseAddrPort("169.254.78.67:4000"), Dst: netip.MustParseAddrPort("10.0.255.1:20035")}
	b, err := frame.AppendTo(nil, payload)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PacketOut(b, map[string]uint64{"submit_to_ingress": 1}); err != nil {
		t.Fatal(err)
	}
	select {
	case in := <-f.packets:
		if in.Metadata["ingress_port"] != 510 {
			t.Errorf("packet-in metadata %v", in.Metadata)
		}
		got, payload, err := wire.ParseFrame(in.Payload)
		if err != nil || got.Src.Port() != wire.Port || got.Dst.Port() != frame.Src.Port() {
			t.Fatal(fmt.Sprint(got), err)
		}
		out := new(wire.Packet)
		if err := out.Unmarshal(payload, wire.Profile128); err != nil {
			t.Fatal(err)
		}
		return out
	case <-time.After(5 * time.Second):
		t.Fatal("no packet-in")
	}
	return nil
}

// BenchmarkReadWhole reads a register of 65,536 cells of 128 bits. It reads the whole register, and
// only the changes since an earlier read (one cell), as at the end of a recovery.
func BenchmarkReadWhole(b *testing.B) {
	for _, engine := range []string{"interp", "ebpf"} {
		compiled := filepath.Join("..", "..", "p4src", "compiled", "netcraq-128")
		pl, err := p4rt.LoadPipeline(compiled+".p4info.txtpb", compiled+".json.gz")
		if err != nil {
			b.Fatal(err)
		}
		var f follower
		c, err := p4rt.New(p4rt.Options{Name: "s1", Target: startTarget(b, "embedded/"+engine), DeviceID: 1,
			ElectionID: p4rt.ElectionID{High: 1, Low: 2}, Info: pl.Info}, f.handler())
		if err != nil {
			b.Fatal(err)
		}
		runClient(b, c)
		wait(b, "primary", primary(c))
		if _, err := c.EnsurePipeline(b.Context(), pl); err != nil {
			b.Fatal(err)
		}
		all := upTo(65536)
		for _, again := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/again=%v", engine, again), func(b *testing.B) {
				for n := 0; b.Loop(); n++ {
					if !again {
						c.Forget()
					}
					if err := c.WriteRegister(b.Context(), "versions", n%65536, n); err != nil {
						b.Fatal(err)
					}
					if _, err := c.ReadRegisterCells(b.Context(), "versions", all); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
