package p4rt

import (
	"context"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/status"
)

// TestIdleTimeouts: an entry that no packet hits is told of once, with its timeout and metadata and
// without its action; one that has no timeout, or is deleted, never.
func TestIdleTimeouts(t *testing.T) {
	w := newWorld(t, "testdata/ageing")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := w.rpc.StreamChannel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	me := &p4v1.Uint128{Low: 1}
	if err := stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: me}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rpc.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: 1, ElectionId: me,
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.program}}); err != nil {
		t.Fatal(err)
	}
	entry := func(table, action string, mac byte) *p4v1.TableEntry {
		return &p4v1.TableEntry{TableId: w.ids[table],
			Match: []*p4v1.FieldMatch{{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Exact_{
				Exact: &p4v1.FieldMatch_Exact{Value: []byte{mac}}}}},
			Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{
				Action: &p4v1.Action{ActionId: w.ids[action]}}}}
	}
	write := func(typ p4v1.Update_Type, te *p4v1.TableEntry) error {
		_, err := w.rpc.Write(ctx, &p4v1.WriteRequest{DeviceId: 1, ElectionId: me,
			Updates: []*p4v1.Update{{Type: typ, Entity: &p4v1.Entity{
				Entity: &p4v1.Entity_TableEntry{TableEntry: te}}}}})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	short, long, none := entry("learned", "NoAction", 1), entry("learned", "NoAction", 2),
		entry("learned", "NoAction", 3)
	short.IdleTimeoutNs, short.Metadata = int64(time.Millisecond), []byte("mine")
	long.IdleTimeoutNs = int64(time.Hour)
	for _, te := range []*p4v1.TableEntry{short, long, none} {
		must(write(p4v1.Update_INSERT, te))
	}
	notice := func() *p4v1.IdleTimeoutNotification {
		t.Helper()
		m, err := stream.Recv()
		must(err)
		n := m.GetIdleTimeoutNotification()
		if n == nil || n.Timestamp == 0 || len(n.TableEntry) != 1 {
			t.Fatalf("the stream brought %v", m)
		}
		return n
	}
	got := notice().TableEntry[0]
	if got.TableId != short.TableId || got.Match[0].GetExact().Value[0] != 1 ||
		got.IdleTimeoutNs != short.IdleTimeoutNs || string(got.Metadata) != "mine" ||
		got.Action != nil {
		t.Errorf("idle is %v", got)
	}
	// What is told next is another entry's: the first is not told of again.
	long.IdleTimeoutNs = int64(2 * time.Millisecond)
	must(write(p4v1.Update_MODIFY, long))
	if got := notice().TableEntry[0]; got.Match[0].GetExact().Value[0] != 2 {
		t.Errorf("idle is %v", got)
	}

	read, err := w.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{{
		Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: w.ids["learned"],
			TimeSinceLastHit: &p4v1.TableEntry_IdleTimeout{}}}}}})
	must(err)
	answer, err := read.Recv()
	must(err)
	var timeouts []int64
	for _, e := range answer.Entities {
		te := e.GetTableEntry()
		timeouts = append(timeouts, te.IdleTimeoutNs)
		if te.TimeSinceLastHit == nil || te.TimeSinceLastHit.ElapsedNs < te.IdleTimeoutNs {
			t.Errorf("read %v", te)
		}
	}
	if len(timeouts) != 3 || timeouts[0] != 1e6 || timeouts[1] != 2e6 || timeouts[2] != 0 {
		t.Errorf("the entries' timeouts are %v", timeouts)
	}

	negative, kept := entry("learned", "NoAction", 4), entry("kept", "NoAction", 4)
	negative.IdleTimeoutNs, kept.IdleTimeoutNs = -1, 1
	hit := entry("learned", "NoAction", 5)
	hit.TimeSinceLastHit = &p4v1.TableEntry_IdleTimeout{}
	hitDefault := &p4v1.TableEntry{TableId: hit.TableId, IsDefaultAction: true, Action: hit.Action,
		TimeSinceLastHit: &p4v1.TableEntry_IdleTimeout{ElapsedNs: 1}}
	timedDefault := &p4v1.TableEntry{TableId: hit.TableId, IsDefaultAction: true,
		Action: hit.Action, IdleTimeoutNs: 1}
	for te, want := range map[*p4v1.TableEntry]string{negative: "not negative",
		hitDefault:   "has_time_since_last_hit must not be set in WriteRequest",
		timedDefault: "the default entry has no idle timeout",
		hit:          "has_time_since_last_hit must not be set in WriteRequest",
		kept:         "idle_timeout_ns must be set to 0 for tables which do not support idle timeout"} {
		kind := p4v1.Update_INSERT
		if te.IsDefaultAction {
			kind = p4v1.Update_MODIFY
		}
		err := write(kind, te)
		text := ""
		for _, d := range status.Convert(err).Details() {
			text += d.(*p4v1.Error).Message
		}
		if !strings.Contains(text, want) {
			t.Errorf("inserting %v: %v %s, want %q", te, err, text, want)
		}
	}
}
