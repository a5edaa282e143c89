package ebpf

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	ebpfruntime "github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/p4rtserver"
)

// controlled is a switch that runs NetCRAQ, as the tail of a chain with one key, and a controller
// that is its primary over P4Runtime.
type controlled struct {
	*device
	info   *p4rt.Info
	client *p4rt.Client
}

const fenceKey = wire.Key(0x01000001)

func newControlled(t testing.TB) *controlled {
	t.Helper()
	config, text, err := p4src.Compiled(128)
	check(t, err)
	var p4info configv1.P4Info
	check(t, prototext.Unmarshal(text, &p4info))
	info, err := p4rt.NewInfo(&p4info)
	check(t, err)
	needKernel(t)
	d, err := newDevice(Options{CPUPort: 510, Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	t.Cleanup(func() { d.Close() })

	pipe := bufconn.Listen(1 << 20)
	g := grpc.NewServer(p4rtserver.ServerOptions()...)
	p4rtserver.New(d, p4rtserver.Options{DeviceID: 1, Log: slog.New(slog.DiscardHandler)}).Register(g)
	go func() { _ = g.Serve(pipe) }()
	t.Cleanup(g.Stop)
	c := &controlled{device: d, info: info}
	c.client, err = p4rt.New(p4rt.Options{Name: "the switch", Target: "passthrough:///x",
		DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 1}, Info: info,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn,
				error) {
				return pipe.Dial()
			})}}, p4rt.Handler{})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go c.client.Run(ctx)
	poll.Until(t, 10*time.Second, "the client is the primary one", func() bool { return c.client.State().Phase == p4rt.Primary },
		func() string { return fmt.Sprint(c.client.State().Err) })
	pipeline, err := p4rt.NewPipeline(info, config)
	check(t, err)
	_, err = c.client.EnsurePipeline(ctx, pipeline)
	check(t, err)
	check(t, c.write(v1.Update_INSERT,
		p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(1)},
			Action: "fabric_port"},
		p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(0x0a00c801)},
			Action: "set_local"},
		p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint64(fenceKey))},
			Action: "set_slot", Params: p4rt.Params{"slot": 5, "realm": 1}},
		c.role(3)))
	d.PortMap.SetPort(memory.Loopback, 1) // where the kernel runs a program by itself
	return c
}

// role is the chain's entry with the switch in a role: 0 is NONE, 3 the tail.
func (c *controlled) role(role uint64) p4rt.Entry {
	return p4rt.Entry{Table: "chain_config", Match: p4rt.Match{"chain": p4rt.Exact(1)},
		Action: "set_chain", Params: p4rt.Params{"role": role, "frozen": uint64(0),
			"lease_required": uint64(0), "epoch": uint64(1), "head_addr": uint64(1),
			"next_addr": uint64(0), "tail_addr": uint64(0x0a00c801), "service_addr": uint64(2),
			"ack_group": uint64(0), "reply_group": uint64(0)}}
}

func (c *controlled) write(typ v1.Update_Type, entries ...p4rt.Entry) error {
	var updates []*v1.Update
	for _, e := range entries {
		te, err := c.info.Encode(e)
		if err != nil {
			return err
		}
		updates = append(updates, &v1.Update{Type: typ, Entity: p4rt.EntryEntity(te)})
	}
	return c.client.Write(context.Background(), updates...)
}

// stamped is a WRITE as the tail gets it from the member before it.
func stamped(t testing.TB, sequence uint64) []byte {
	t.Helper()
	w := wire.Packet{Op: wire.Write, Flags: wire.Stamped, Epoch: 1, Request: 1, Key: fenceKey,
		Version: wire.Version(1<<48 | sequence), Value: []byte("value")}
	payload, err := w.AppendTo(nil, wire.Profile(128))
	check(t, err)
	f := wire.Frame{Src: netip.MustParseAddrPort("10.0.1.1:4000"),
		Dst: netip.MustParseAddrPort("10.0.200.1:20035"), Principal: 1}
	frame, err := f.AppendTo(nil, payload)
	check(t, err)
	return frame
}

// register is the one that has the keys' versions.
func (c *controlled) register() *bmv2json.Register {
	for _, r := range c.pipeline.Prog.Registers {
		if strings.HasSuffix(r.Name, ".versions") {
			return r
		}
	}
	panic("no such register")
}

// versions is what the switch has committed and accepted of the key now, without asking for the
// registers' lock.
func (c *controlled) versions() string {
	a := c.pipeline.Registers[c.register().Index]
	at := a.At(5)
	return fmt.Sprintf("%x", c.pipeline.State.Mem[at:at+a.Cell])
}

// lookedUp says whether a packet, the first one, has found the chain's entry.
func (c *controlled) lookedUp(t *testing.T) bool {
	t.Helper()
	for _, h := range c.pipeline.Prog.Headers {
		for _, f := range h.Type.Fields {
			if strings.HasPrefix(f.Name, "metadata_t._chain_known") {
				var phvs [][]byte
				check(t, c.pipeline.PHV.Lookup(uint32(0), &phvs))
				for _, phv := range phvs {
					if phv[c.pipeline.Layout.Field(bmv2json.FieldRef{Header: h,
						Field: f}).Off] != 0 {
						return true
					}
				}
				return false
			}
		}
	}
	t.Fatal("the program has no such field")
	return false
}

// TestWriteIsFinal keeps a packet waiting for the registers, after it has found its chain's entry
// in the tables, and takes the switch's role away meanwhile. When that has been acknowledged over
// P4Runtime, the packet must not commit any more: that a switch is fenced, and that a chain is
// frozen, is nothing else.
func TestWriteIsFinal(t *testing.T) {
	c := newControlled(t)
	p := c.pipeline
	frame := stamped(t, 7)
	phvs := make([][]byte, ebpf.MustPossibleCPU())
	for i := range phvs {
		phvs[i] = make([]byte, p.PHV.ValueSize())
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		check(t, p.PHV.Put(uint32(0), phvs))
		oldest := p.State.Load(p.Epoch + memory.OldestEpoch)
		p.State.Store(p.Lock, 1)
		done := make(chan error, 1)
		go func() {
			_, err := p.TC.Run(&ebpf.RunOptions{Data: frame})
			done <- err
		}()
		for began := time.Now(); !c.lookedUp(t) && time.Since(began) < 10*time.Millisecond; {
		}
		acknowledged := make(chan string, 1)
		go func() {
			check(t, c.write(v1.Update_MODIFY, c.role(0)))
			acknowledged <- c.versions()
		}()
		// the packet waits for some 20 ms only: what follows must be over by then, and is not on
		// every try
		var then string
		for began := time.Now(); then == "" &&
			p.State.Load(p.Epoch+memory.OldestEpoch) == oldest &&
			time.Since(began) < 10*time.Millisecond; runtime.Gosched() {
			select {
			case then = <-acknowledged:
			default:
			}
		}
		p.State.Store(p.Lock, 0)
		if then == "" {
			then = <-acknowledged
		}
		check(t, <-done)
		if now := c.versions(); now != then {
			t.Fatalf("role NONE was acknowledged when the key's versions were %s, "+
				"and then a packet made them %s", then, now)
		}
		if p.State.Load(p.Epoch+memory.EpochDropped) > 0 {
			return
		}
		check(t, c.write(v1.Update_MODIFY, c.role(3)))
		check(t, p.FillRegister(c.register().Name, make([]byte, 16)))
	}
	t.Error("no packet waited while the role was taken away: nothing was tested")
}

// TestBarrierSparesOthers: a packet that begins after a change is not dropped, and neither is any
// while nothing changes.
func TestBarrierSparesOthers(t *testing.T) {
	c := newControlled(t)
	for n := range uint64(100) {
		check(t, c.pipeline.Barrier())
		_, err := c.pipeline.TC.Run(&ebpf.RunOptions{Data: stamped(t, n+1), Repeat: 3})
		check(t, err)
		if want := fmt.Sprintf("%016[1]x%016[1]x", 1<<48|n+1); c.versions() != want {
			t.Fatalf("packet %d: the key's versions are %s, not %s", n, c.versions(), want)
		}
	}
	if n := c.pipeline.State.Load(c.pipeline.Epoch + memory.EpochDropped); n > 0 {
		t.Errorf("%d packets were dropped", n)
	}
}

// TestBarrierLetsEnd: a packet that is on its way when something changes ends as it would have,
// unless it is kept waiting.
func TestBarrierLetsEnd(t *testing.T) {
	c := newControlled(t)
	const packets = 500_000
	done := make(chan error, 1)
	go func() {
		_, err := c.pipeline.TC.Run(&ebpf.RunOptions{Data: stamped(t, 1), Repeat: packets})
		done <- err
	}()
	barriers := 0
	for running := true; running; barriers++ {
		select {
		case err := <-done:
			check(t, err)
			running = false
		default:
			check(t, c.pipeline.Barrier())
			// the next one is for other packets
			for began := time.Now(); time.Since(began) < 20*time.Microsecond; {
				runtime.Gosched()
			}
		}
	}
	// The machine may take a CPU away for longer than the grace.
	if n := c.pipeline.State.Load(c.pipeline.Epoch + memory.EpochDropped); barriers < 100 ||
		n > uint64(barriers/300) {
		t.Errorf("%d changes had %d of %d packets dropped", barriers, n, packets)
	}
}

// TestBarrierWaitsForHolder: a packet that has the registers has looked up what was before.
func TestBarrierWaitsForHolder(t *testing.T) {
	c := newControlled(t)
	c.pipeline.State.Store(c.pipeline.Lock, 1)
	done := make(chan error, 1)
	go func() { done <- c.pipeline.Barrier() }()
	select {
	case err := <-done:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(3 * time.Millisecond):
		c.pipeline.State.Store(c.pipeline.Lock, 0)
		check(t, <-done)
	}
}

// BenchmarkWrite is what a controller waits for the acknowledgement of one changed entry, and of
// 100.
func BenchmarkWrite(b *testing.B) {
	c := newControlled(b)
	for _, n := range []int{1, 100} {
		entries := make([]p4rt.Entry, n)
		for i := range entries {
			entries[i] = c.role(3)
			entries[i].Match = p4rt.Match{"chain": p4rt.Exact(uint64(i + 2))}
			check(b, c.write(v1.Update_INSERT, entries[i]))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				check(b, c.write(v1.Update_MODIFY, entries...))
			}
		})
		for _, e := range entries {
			check(b, c.write(v1.Update_DELETE, e))
		}
	}
	b.Run("Barrier", func(b *testing.B) {
		for b.Loop() {
			check(b, c.pipeline.Barrier())
		}
	})
	b.Run("GracePeriod", func(b *testing.B) {
		for b.Loop() {
			ebpfruntime.WaitForPackets()
		}
	})
}
