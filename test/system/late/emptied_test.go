package late

import (
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestEmptied, a client with another P4Runtime role loads the program into a switch again. This
// empties the switch, but does not end the controller's stream. It happens to the head, a replica
// and the tail in turn. An emptied switch must answer for no key until the controller has filled it
// and brought it into the chain again.
func TestEmptied(t *testing.T) { onEachEngine(t, emptied) }

func emptied(t *testing.T, engine string) {
	if engine == "bmv2" {
		t.Skip("skipped: simple_switch_grpc knows one role")
	}
	const keys = 5
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2, Rejoin: 300}))
	c := nw.StartController("state.json")
	c.WaitReady()
	placed, hosts := add(c, "main", specs("k", keys, true)), 0
	for position, what := range []string{"head", "replica", "tail"} {
		ch := c.Chain()
		name := ch.Members[position].Switch
		sw := number(t, name)
		empty(t, sw)
		began, asked, wrong, told := time.Now(), 0, map[string]int{}, false
		for end := began.Add(4 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if !told && time.Since(began) > 2*time.Second {
				// Adding a host makes the controller write the topology's missing entries to the
				// switch. Before that, the switch answers no packet.
				told = true
				hosts++
				c.Update(nw.Changed(func(top topologytest.Object) {
					topologytest.Add(top, "hosts", topologytest.Pods("s1", hosts)...)
				}))
			}
			for _, k := range placed {
				read := &wire.Packet{Op: wire.Read, Key: wire.Key(k.KeyID), Request: 7}
				r, err := nw.Hosts[sw-1].Ask(lab.SwitchAddr(sw), read, 100*time.Millisecond)
				if err != nil || r.Status == wire.NotServing || r.Status == wire.NoChain {
					continue
				}
				if asked++; string(r.Value) != k.Name {
					wrong[r.Status.String()]++
				}
			}
		}
		t.Logf("%s, the %s, was emptied, and has answered %d reads since", name, what, asked)
		for status, n := range wrong {
			t.Errorf("%s, the %s, was emptied: %d reads of keys that are there were answered %s", name, what, n, status)
		}
		c.WaitUntil(func() bool {
			ch := c.Chain()
			return ch.Epoch > 0 && len(ch.Members) == 3 && ch.Short() == 0 && c.API.Ready(t.Context()) == nil
		}, "the chain to be whole again")
		state, err := c.API.Directory(t.Context(), "", true)
		if err != nil || len(state) != keys {
			t.Fatalf("%d keys, %v", len(state), err)
		}
		for _, k := range state {
			for _, s := range k.State {
				if string(s.Value) != k.Name {
					t.Errorf("the chain is whole, and %s has %+v of %s", s.Switch, s, k.Name)
				}
			}
		}
		if t.Failed() {
			t.Logf("%s", c.History())
			return
		}
	}
}

// empty loads a switch's program into it again, with another role than the controller's.
func empty(t *testing.T, sw int) {
	t.Helper()
	ctx := within(t, 30*time.Second)
	conn, err := grpc.NewClient(lab.SwitchServer(sw), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rpc := v1.NewP4RuntimeClient(conn)
	stream, err := rpc.StreamChannel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id, role := &v1.Uint128{Low: uint64(time.Now().UnixNano())}, "another"
	if err := stream.Send(&v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Arbitration{
		Arbitration: &v1.MasterArbitrationUpdate{DeviceId: uint64(sw), ElectionId: id,
			Role: &v1.Role{Name: role}}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetArbitration().GetStatus().GetCode() != 0 {
		t.Fatalf("%v, %v", m, err)
	}
	config := &v1.ForwardingPipelineConfig{P4Info: &configv1.P4Info{}, Cookie: &v1.ForwardingPipelineConfig_Cookie{}}
	program, text, err := p4src.Compiled(128)
	if err == nil {
		config.P4DeviceConfig, err = program, prototext.Unmarshal(text, config.P4Info)
	}
	if err != nil {
		t.Fatal(err)
	}
	now, err := rpc.GetForwardingPipelineConfig(ctx, &v1.GetForwardingPipelineConfigRequest{DeviceId: uint64(sw),
		ResponseType: v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY})
	if err != nil {
		t.Fatal(err)
	}
	config.Cookie = now.Config.Cookie
	if _, err := rpc.SetForwardingPipelineConfig(ctx, &v1.SetForwardingPipelineConfigRequest{DeviceId: uint64(sw),
		ElectionId: id, Role: role, Action: v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: config}); err != nil {
		t.Fatalf("emptying s%d: %v", sw, err)
	}
}
