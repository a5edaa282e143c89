package p4rtserver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// TestIdleTimeouts checks that the primary receives a notification after each timeout in which no
// packet hits an entry. So a new primary receives a notification, too. It must contain the timeout
// and metadata, but not the action. The server must never report an entry without a timeout.
func TestIdleTimeouts(t *testing.T) {
	w := newWorld(t, "testdata/ageing")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lead := func(id *p4v1.Uint128) p4v1.P4Runtime_StreamChannelClient {
		t.Helper()
		stream, err := w.rpc.StreamChannel(ctx)
		must(err)
		must(stream.Send(&p4v1.StreamMessageRequest{
			Update: &p4v1.StreamMessageRequest_Arbitration{
				Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id}}}))
		_, err = stream.Recv()
		must(err)
		return stream
	}
	me := &p4v1.Uint128{Low: 1}
	stream := lead(me)
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
	short, long, none := entry("learned", "NoAction", 1), entry("learned", "NoAction", 2),
		entry("learned", "NoAction", 3)
	short.IdleTimeoutNs, short.Metadata = int64(time.Millisecond), []byte("mine")
	long.IdleTimeoutNs = int64(time.Hour)
	begun := time.Now()
	for _, te := range []*p4v1.TableEntry{short, long, none} {
		must(write(p4v1.Update_INSERT, te))
	}
	// hear returns the entry in the next notification, which must be for this address. Entry 3 must
	// never be reported.
	hear := func(stream p4v1.P4Runtime_StreamChannelClient, mac byte) *p4v1.TableEntry {
		t.Helper()
		for {
			m, err := stream.Recv()
			must(err)
			n := m.GetIdleTimeoutNotification()
			if n == nil || n.Timestamp == 0 || len(n.TableEntry) == 0 {
				t.Fatalf("the stream brought %v", m)
			}
			for _, te := range n.TableEntry {
				switch te.Match[0].GetExact().Value[0] {
				case mac:
					return te
				case 3:
					t.Fatalf("an entry without a timeout is idle: %v", te)
				}
			}
		}
	}
	for range 2 {
		got := hear(stream, 1)
		if got.TableId != short.TableId || got.IdleTimeoutNs != short.IdleTimeoutNs ||
			string(got.Metadata) != "mine" || got.Action != nil {
			t.Errorf("idle is %v", got)
		}
	}
	me = &p4v1.Uint128{Low: 2}
	stream = lead(me)
	hear(stream, 1)
	long.IdleTimeoutNs = int64(2 * time.Millisecond)
	must(write(p4v1.Update_MODIFY, long))
	hear(stream, 2)

	readWith := func(te *p4v1.TableEntry) (*p4v1.ReadResponse, error) {
		te.TimeSinceLastHit = &p4v1.TableEntry_IdleTimeout{}
		read, err := w.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{{
			Entity: &p4v1.Entity_TableEntry{TableEntry: te}}}})
		must(err)
		return read.Recv()
	}
	answer, err := readWith(&p4v1.TableEntry{TableId: w.ids["learned"]})
	must(err)
	var timeouts []int64
	for _, e := range answer.Entities {
		te := e.GetTableEntry()
		timeouts = append(timeouts, te.IdleTimeoutNs)
		since := time.Duration(te.TimeSinceLastHit.GetElapsedNs())
		if since < time.Duration(te.IdleTimeoutNs) || since > time.Since(begun) {
			t.Errorf("read %v, %v after the table was filled", te, time.Since(begun))
		}
	}
	if len(timeouts) != 3 || timeouts[0] != 1e6 || timeouts[1] != 2e6 || timeouts[2] != 0 {
		t.Errorf("the entries' timeouts are %v", timeouts)
	}

	for what, te := range map[string]*p4v1.TableEntry{
		"the default entry":        {TableId: w.ids["learned"], IsDefaultAction: true},
		"a table without timeouts": {TableId: w.ids["kept"]},
	} {
		_, err := readWith(te)
		if d := status.Convert(err).Details(); len(d) != 1 ||
			codes.Code(d[0].(*p4v1.Error).CanonicalCode) != codes.InvalidArgument {
			t.Errorf("asked when a packet last hit %s, the server answers %v %v", what, err, d)
		}
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
		timedDefault: "has no idle timeout: leave idle_timeout_ns",
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

// TestIdleNotices checks that many idle entries are reported in several messages, of a size that
// clients accept. For a slow controller, the server must not queue reports that it repeats later.
func TestIdleNotices(t *testing.T) {
	tab := &translate.Table{Name: "t", Info: &p4cfg.Table{
		IdleTimeoutBehavior: p4cfg.Table_NOTIFY_CONTROL}}
	c := &config{Schema: &translate.Schema{TableOrder: []*translate.Table{tab}},
		entries: map[*translate.Table]map[string]*entryState{tab: {translate.MatchKey(nil, 0): {
			metadata: make([]byte, 1000)}}}}
	const many = 5000
	notices := c.idleNotices(slices.Repeat([]target.IdleEntry{{Table: "t"}}, many))
	entries := 0
	for _, m := range notices {
		n := len(m.GetIdleTimeoutNotification().TableEntry)
		if entries += n; n == 0 || proto.Size(m) > 2*chunkBytes {
			t.Errorf("a message of %d bytes has %d entries", proto.Size(m), n)
		}
	}
	if entries != many {
		t.Errorf("%d of %d entries were reported", entries, many)
	}
	st := newStream()
	if !st.offer(notices...) || st.offer(notices...) || len(st.queue) != len(notices) {
		t.Errorf("%d messages wait for a controller that was given %d twice", len(st.queue),
			len(notices))
	}
	st.offer(&p4v1.StreamMessageResponse{})
	if len(st.queue) != len(notices)+1 {
		t.Error("other messages found no room")
	}
}
