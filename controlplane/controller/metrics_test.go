package controller_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
)

// TestSwitchEventsMetric: /metrics shows the switches' counters, and omits switches that do not
// answer.
func TestSwitchEventsMetric(t *testing.T) {
	const events = 306332976 // the id of the P4 counter (p4src/include/pipeline.p4)
	f := newFakes(t, nil)
	c, _ := f.start()
	ready(t, c)
	f.servers[1].SetCounter(events, 60, 7)
	f.servers[2].Stop()
	w := httptest.NewRecorder()
	c.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for series, there := range map[string]bool{
		`{event="drop_closed_port",switch="s1"} 0`: true, `{event="drop_closed_port",switch="s2"} 7`: true,
		`{event="drop_closed_port",switch="s3"}`: false,
	} {
		if strings.Contains(text, "netcraq_switch_events_total"+series) != there {
			t.Errorf("there is %s: %v; want %v in:\n%s", series, !there, there, text)
		}
	}
}

// TestUnsentPackets: if a switch accepts no packets, its counters and /metrics show how many LEASEs
// the controller dropped.
func TestUnsentPackets(t *testing.T) {
	f := newFakes(t, nil)
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	answering(f.servers[0], func(p wire.Packet) *wire.Packet {
		if p.Op == wire.Lease {
			<-stuck
		}
		return records(p)
	})
	c, _ := f.start()
	ready(t, c)
	const leases = 5000 // more LEASEs than gRPC and the controller's queue hold
	dropped := uint64(0)
	for range leases {
		if err := c.SendLease("s1"); err != nil {
			dropped++
		}
	}
	if dropped == 0 {
		t.Fatalf("none of %d LEASEs was dropped", leases)
	}
	for sw, want := range map[string]uint64{"s1": dropped, "s2": 0} {
		counters, err := c.Counters(t.Context(), sw)
		if err != nil {
			t.Fatal(err)
		}
		if counters.Unsent != want {
			t.Errorf("%s has %d unsent packets, want %d", sw, counters.Unsent, want)
		}
		w := httptest.NewRecorder()
		c.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		series := fmt.Sprintf("netcraq_switch_unsent_packets_total{switch=%q} %d\n", sw, want)
		if !strings.Contains(w.Body.String(), series) {
			t.Errorf("no %s in:\n%s", series, w.Body)
		}
	}
}
