package ebpf

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
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

	"github.com/netcraq/netcraq/api/gunzip"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	ebpfruntime "github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/p4rtserver"
)

// controlled is a switch that runs NetCRAQ as the tail of a chain with one key. It is connected to
// its own primary controller over P4Runtime.
type controlled struct {
	*device
	info   *configv1.P4Info
	client v1.P4RuntimeClient
}

const fenceKey = wire.Key(0x01000001)

var election = &v1.Uint128{Low: 1}

func newControlled(t testing.TB) *controlled {
	t.Helper()
	needKernel(t)
	d, err := newDevice(Options{CPUPort: 510, Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	t.Cleanup(func() { d.Close() })

	pipe := bufconn.Listen(1 << 20)
	g := grpc.NewServer(p4rtserver.ServerOptions()...)
	p4rtserver.New(d, p4rtserver.Options{DeviceID: 1, Log: slog.New(slog.DiscardHandler)}).Register(g)
	go func() { _ = g.Serve(pipe) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return pipe.Dial() }))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	c := &controlled{device: d, info: &configv1.P4Info{}, client: v1.NewP4RuntimeClient(conn)}
	c.configure(t)
	check(t, c.write(v1.Update_INSERT,
		c.entry("port_trust", 1, "fabric_port"),
		c.entry("local_address", 0x0a00c801, "set_local"),
		// the parameters are slot 5 and realm 1
		c.entry("key_index", uint64(fenceKey), "set_slot", 5, 1),
		c.role(3)))
	// The kernel runs test programs on the loopback interface.
	d.PortMap.SetPort(memory.Loopback, 1)
	return c
}

// configure becomes the switch's primary controller and pushes NetCRAQ's program.
func (c *controlled) configure(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(compiled + "128.p4info.txtpb")
	check(t, err)
	check(t, prototext.Unmarshal(text, c.info))
	packed, err := os.ReadFile(compiled + "128.json.gz")
	check(t, err)
	config, err := gunzip.Bytes(packed)
	check(t, err)
	stream, err := c.client.StreamChannel(context.Background())
	check(t, err)
	check(t, stream.Send(&v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Arbitration{
		Arbitration: &v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: election}}}))
	_, err = stream.Recv()
	check(t, err)
	_, err = c.client.SetForwardingPipelineConfig(context.Background(), &v1.SetForwardingPipelineConfigRequest{
		DeviceId: 1, ElectionId: election, Action: v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &v1.ForwardingPipelineConfig{P4Info: c.info, P4DeviceConfig: config}})
	check(t, err)
}

// role returns the chain's table entry that gives the switch a role: 0 is NONE, 3 the tail.
func (c *controlled) role(role uint64) *v1.TableEntry { return c.roleIn(1, role) }

func (c *controlled) roleIn(chain, role uint64) *v1.TableEntry {
	const frozen, leaseRequired, epoch, head, next, tail, service = 0, 0, 1, 1, 0, 0x0a00c801, 2
	return c.entry("chain_config", chain, "set_chain",
		role, frozen, leaseRequired, epoch, head, next, tail, service, 0, 0)
}

// entry returns an entry for a table with one exact match, with the action's parameters in order.
// Names are aliases from the P4Info.
func (c *controlled) entry(table string, match uint64, action string, params ...uint64) *v1.TableEntry {
	number := func(n uint64) []byte { return big.NewInt(0).SetUint64(n).FillBytes(make([]byte, 8)) }
	call := &v1.Action{}
	for _, a := range c.info.Actions {
		if a.Preamble.Alias == action {
			call.ActionId = a.Preamble.Id
		}
	}
	for i, n := range params {
		call.Params = append(call.Params, &v1.Action_Param{ParamId: uint32(i + 1), Value: number(n)})
	}
	e := &v1.TableEntry{Action: &v1.TableAction{Type: &v1.TableAction_Action{Action: call}},
		Match: []*v1.FieldMatch{{FieldId: 1, FieldMatchType: &v1.FieldMatch_Exact_{
			Exact: &v1.FieldMatch_Exact{Value: number(match)}}}}}
	for _, x := range c.info.Tables {
		if x.Preamble.Alias == table {
			e.TableId = x.Preamble.Id
		}
	}
	return e
}

func (c *controlled) write(typ v1.Update_Type, entries ...*v1.TableEntry) error {
	var updates []*v1.Update
	for _, e := range entries {
		updates = append(updates, &v1.Update{Type: typ,
			Entity: &v1.Entity{Entity: &v1.Entity_TableEntry{TableEntry: e}}})
	}
	_, err := c.client.Write(context.Background(),
		&v1.WriteRequest{DeviceId: 1, ElectionId: election, Updates: updates})
	return err
}

// stamped returns a WRITE packet from the tail's predecessor.
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

// register returns the register that contains the keys' versions.
func (c *controlled) register() *bmv2json.Register {
	for _, r := range c.pipeline.Prog.Registers {
		if strings.HasSuffix(r.Name, ".versions") {
			return r
		}
	}
	panic("no such register")
}

// versions returns the key's committed and accepted versions. It reads them without the registers'
// lock.
func (c *controlled) versions() string {
	a := c.pipeline.Registers[c.register().Index]
	at := a.At(5)
	return fmt.Sprintf("%x", c.pipeline.State.Mem[at:at+a.Cell])
}

// lookedUp reports whether the first packet has already looked up the chain's entry.
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

// TestWriteIsFinal removes the switch's role while a packet that has already found its chain's
// entry waits for the registers. After P4Runtime has acknowledged the removal, the packet must not
// commit. Fencing a switch and freezing a chain rely on this.
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
		// The packet waits only about 20 ms. In some tries the following steps do not finish in
		// that time.
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

// TestBarrierSparesOthers checks that a packet is not dropped if it starts after a table change, or
// if no table changes.
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

// TestBarrierLetsEnd checks that packets in flight during a table change finish normally unless
// they have to wait.
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
			// The pause lets new packets start, so that the next barrier meets different packets.
			for began := time.Now(); time.Since(began) < 20*time.Microsecond; {
				runtime.Gosched()
			}
		}
	}
	// The machine may take a CPU away for longer than a barrier waits, so a few packets may be
	// dropped.
	if n := c.pipeline.State.Load(c.pipeline.Epoch + memory.EpochDropped); barriers < 100 ||
		n > uint64(barriers/300) {
		t.Errorf("%d changes had %d of %d packets dropped", barriers, n, packets)
	}
}

// TestBarrierWaitsForHolder checks that the barrier waits for a packet that holds the registers'
// lock, because this packet used the old entries.
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

// BenchmarkWrite measures how long a controller waits for the acknowledgement of 1 changed entry,
// and of 100.
func BenchmarkWrite(b *testing.B) {
	c := newControlled(b)
	for _, n := range []int{1, 100} {
		entries := make([]*v1.TableEntry, n)
		for i := range entries {
			entries[i] = c.roleIn(uint64(i+2), 3)
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
