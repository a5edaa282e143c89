package p4rtserver

import (
	"context"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// TestPSA pushes a PSA program, and reads and writes its entities. In its JSON, counters and meters
// are extern objects.
func TestPSA(t *testing.T) {
	w := newWorld(t, "../stf/testdata/psa/psa")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got := w.connect(t, "a", "1", "", 1); got != "ok\n" {
		t.Fatal(got)
	}
	if got := w.push(ctx, w.controllers["a"], "VERIFY_AND_COMMIT", "", "", 0); got != "ok\n" {
		t.Fatal(got)
	}
	_, err := w.rpc.Write(ctx, &p4v1.WriteRequest{DeviceId: 1, ElectionId: &p4v1.Uint128{Low: 1},
		Updates: []*p4v1.Update{
			{Type: p4v1.Update_INSERT, Entity: &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{
				TableEntry: &p4v1.TableEntry{TableId: w.ids["results"], Priority: 1,
					Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{
						Action: &p4v1.Action{ActionId: w.ids["unknown"]}}}}}}},
			{Type: p4v1.Update_MODIFY, Entity: &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{
				CounterEntry: &p4v1.CounterEntry{CounterId: w.ids["counter"],
					Index: &p4v1.Index{Index: 3}, Data: &p4v1.CounterData{PacketCount: 7}}}}},
			{Type: p4v1.Update_MODIFY, Entity: &p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{
				MeterEntry: &p4v1.MeterEntry{MeterId: w.ids["meter"], Index: &p4v1.Index{Index: 2},
					Config: &p4v1.MeterConfig{Cir: 1, Cburst: 1, Pir: 2, Pburst: 2}}}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	read, err := w.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{
		{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: w.ids["results"]}}},
		{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{
			CounterId: w.ids["counter"], Index: &p4v1.Index{Index: 3}}}},
		{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{MeterId: w.ids["meter"],
			Index: &p4v1.Index{Index: 2}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := read.Recv()
	if err != nil {
		t.Fatal(err)
	}
	e := answer.Entities
	if len(e) != 3 || e[0].GetTableEntry().GetPriority() != 1 ||
		e[1].GetCounterEntry().GetData().GetPacketCount() != 7 ||
		e[2].GetMeterEntry().GetConfig().GetPir() != 2 {
		t.Errorf("read %v", e)
	}
}
