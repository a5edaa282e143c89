package switches

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// idleOwner ignores a device's reports.
type idleOwner struct{ Owner }

func (idleOwner) Post(func())     {}
func (idleOwner) Now() chain.Time { return 0 }

// TestUnsent: a device counts the packets that it drops because its queue is full, and the packets
// that it cannot send because the stream has ended. It does not count packets that it refuses
// without a stream.
func TestUnsent(t *testing.T) {
	const compiled = "../../../p4src/compiled/netcraq-128"
	pipeline, err := p4rt.LoadPipeline(compiled+".p4info.txtpb", compiled+".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	server := &p4rttest.Server{DeviceID: 1}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	d, err := New(Options{Owner: idleOwner{}, Program: &program.Program{Pipeline: pipeline},
		Requests: NewRequests(), Election: p4rt.ElectionID{Low: 1}, Log: slog.New(slog.DiscardHandler)},
		&topology.Switch{Name: "s1", P4Runtime: server.Addr, DeviceID: 1})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { d.Client.Run(ctx) })
	phase := func(want p4rt.Phase) {
		t.Helper()
		poll.Until(t, 20*time.Second, "the connection changes", func() bool { return d.Client.State().Phase == want },
			func() string { return d.Client.State().Phase.String() })
	}
	phase(p4rt.Primary)
	room := cap(d.sender)
	for n := range room + 2 {
		if err := d.send([]byte{1}); (err != nil) != (n >= room) {
			t.Fatalf("packet %d of %d that may wait: %v", n+1, room, err)
		}
	}
	if got := d.Unsent(); got != 2 {
		t.Errorf("%d unsent packets with a full queue, want 2", got)
	}
	server.Stop()
	phase(p4rt.Disconnected)
	if err := d.send([]byte{1}); err == nil {
		t.Error("a packet was accepted without a stream")
	}
	running.Go(func() { d.sendQueued(ctx) })
	want := uint64(room + 2)
	poll.Until(t, 20*time.Second, "all queued packets are counted", func() bool { return d.Unsent() >= want && len(d.sender) == 0 })
	if got := d.Unsent(); got != want {
		t.Errorf("%d unsent packets after the stream ended, want %d", got, want)
	}
}
