package switches

import (
	"context"
	"errors"
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

// connected returns a device that is the primary of a switch without a data plane.
func connected(t *testing.T) (*Device, *p4rttest.Server) {
	t.Helper()
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
	d, err := New(Options{Owner: idleOwner{}, Program: &program.Program{Pipeline: pipeline}, Limits: NewLimits(),
		Requests: NewRequests(), Election: p4rt.ElectionID{Low: 1}, Log: slog.New(slog.DiscardHandler)},
		&topology.Switch{Name: "s1", P4Runtime: server.Addr, DeviceID: 1})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { d.Client.Run(ctx) })
	poll.Until(t, 20*time.Second, "the switch is connected", func() bool {
		return d.Client.State().Phase == p4rt.Primary
	})
	return d, server
}

// TestIncarnation: what was decided before a switch was emptied does not happen after it, even in
// the same connection. Operations on keys take it for another connection.
func TestIncarnation(t *testing.T) {
	d, server := connected(t)
	stream := d.Client.State().Stream
	d.loadedAt, d.setUpAt = stream, stream
	before, connection := d.incarnation(), target{d}.Connection()
	if err := d.ReadIn(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	d.programLoaded(stream)
	if target := (target{d}); target.Connection() == connection {
		t.Error("operations on keys would not notice")
	}
	if err := d.ReadIn(t.Context(), before); !errors.Is(err, ErrNotConnected) {
		t.Errorf("the switch is read for what was decided before: %v", err)
	}
	var answer error
	d.installLater(t.Context(), []InstallRequest{{In: before, Chain: &topology.Chain{ID: 7}, Config: chain.Config{Epoch: 9},
		Done: func(err error) { answer = err }}})
	if !errors.Is(answer, ErrNotConnected) || server.Writes() > 0 {
		t.Errorf("%d writes, %v", server.Writes(), answer)
	}
}

// TestPartThatWasOvertaken: a part that has waited is not installed if the switch meanwhile has its
// part of a later configuration, for which a chain waited. The same holds for a part that waits
// together with a later one of its chain.
func TestPartThatWasOvertaken(t *testing.T) {
	d, server := connected(t)
	stream := d.Client.State().Stream
	d.loadedAt, d.setUpAt = stream, stream
	d.parts[7] = chain.Config{Epoch: 3}
	var answers []error
	ask := func(epoch uint16) InstallRequest {
		return InstallRequest{In: d.incarnation(), Chain: &topology.Chain{ID: 7}, Config: chain.Config{Epoch: epoch},
			Done: func(err error) { answers = append(answers, err) }}
	}
	d.installLater(t.Context(), []InstallRequest{ask(1), ask(2)})
	if len(answers) != 2 || !errors.Is(answers[0], errOvertaken) || !errors.Is(answers[1], errOvertaken) {
		t.Errorf("the answers are %v", answers)
	}
	if d.parts[7].Epoch != 3 || server.Writes() > 0 {
		t.Errorf("the switch is at epoch %d after %d writes", d.parts[7].Epoch, server.Writes())
	}
}
