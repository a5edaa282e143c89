package p4rtserver

import (
	"context"
	"os/exec"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/bmv2test"
)

// TestLeftOutOfBMv2 sends the requests of scenarios/leftout.txt to BMv2, if it is installed. BMv2
// accepts a P4Info with more objects than the program has, and refuses an entry of a missing table.
func TestLeftOutOfBMv2(t *testing.T) {
	binary, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Skipf("BMv2 is not installed: %v", err)
	}
	w := newWorld(t, "testdata/leftout")
	addr := bmv2test.FreeAddress(t)
	args := append(bmv2test.ThriftFlags(t, binary, bmv2test.FreeAddress(t)), "--no-p4", "--log-level", "off", "--", "--grpc-server-addr", addr)
	cmd := exec.Command(binary, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rpc := p4v1.NewP4RuntimeClient(conn)
	stream, err := rpc.StreamChannel(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	one := &p4v1.Uint128{Low: 1}
	if err := stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{ElectionId: one},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		ElectionId: one, Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.program},
	}); err != nil {
		t.Errorf("BMv2 refuses the P4Info: %v", err)
	}
	write := func(typ p4v1.Update_Type, table string) codes.Code {
		e := &p4v1.TableEntry{TableId: w.ids[table],
			Match: []*p4v1.FieldMatch{{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Exact_{
				Exact: &p4v1.FieldMatch_Exact{Value: []byte{1}}}}}}
		e.Action = &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: &p4v1.Action{
			ActionId: w.ids["fwd"], Params: []*p4v1.Action_Param{{ParamId: 1, Value: []byte{2}}}}}}
		_, err := rpc.Write(ctx, &p4v1.WriteRequest{ElectionId: one,
			Updates: []*p4v1.Update{{Type: typ, Entity: &p4v1.Entity{
				Entity: &p4v1.Entity_TableEntry{TableEntry: e}}}}})
		for _, d := range status.Convert(err).Details() {
			if e, ok := d.(*p4v1.Error); ok {
				return codes.Code(e.CanonicalCode)
			}
		}
		return status.Code(err)
	}
	for _, c := range []struct {
		typ   p4v1.Update_Type
		table string
		want  codes.Code
	}{
		{p4v1.Update_INSERT, "here", codes.OK}, {p4v1.Update_INSERT, "gone", codes.Unknown},
		{p4v1.Update_MODIFY, "gone", codes.NotFound}, {p4v1.Update_DELETE, "gone", codes.NotFound},
	} {
		if got := write(c.typ, c.table); got != c.want {
			t.Errorf("BMv2 answers %v of an entry of %s with %v, not %v", c.typ, c.table, got,
				c.want)
		}
	}
}
