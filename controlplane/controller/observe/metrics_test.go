package observe

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// TestMetrics checks the metrics of a failover and a recovery.
func TestMetrics(t *testing.T) {
	m := NewMetrics()
	start := time.Unix(1000, 0)
	at := func(after time.Duration, kind string) {
		m.Count(admin.Event{Type: kind, Chain: "main", Switch: "s2", Time: start.Add(after)})
	}
	config := chain.Config{Epoch: 7, Members: []string{"s1", "s2"}, Lease: time.Second}
	members := []chain.MemberStatus{{Switch: "s1", Ready: true, LeaseLive: true}, {Switch: "s2"}}
	m.ShowChain("main", chain.Status{Config: config, Members: members})
	m.ShowSwitch("s2", false)
	at(0, "chain.failover")
	// another member fails during the first failover, but there is only one outage
	at(40*time.Millisecond, "chain.failover")
	at(150*time.Millisecond, "chain.installed")
	at(time.Second, "chain.recovering")
	// a failed recovery must not count towards the duration of the next recovery
	at(2*time.Second, "chain.not-recovered")
	at(3*time.Second, "chain.recovering")
	at(3*time.Second, "chain.recovering")
	config.Epoch, config.Members, config.Freeze, config.Shadow = 8, []string{"s1"}, chain.FreezeAll, "s2"
	m.ShowChain("main", chain.Status{Config: config, Members: members[:1], Length: 3})
	frozen := metricsText(m)
	if want := `netcraq_chain_missing_members{chain="main"} 2`; !strings.Contains(frozen, want+"\n") {
		t.Errorf("no %s in:\n%s", want, frozen)
	}
	at(5*time.Second, "chain.installed")
	config.Freeze, config.Shadow = chain.Thawed, ""
	m.ShowChain("main", chain.Status{Config: config, Members: members[:1]})
	at(5*time.Second, "chain.recovered")
	m.ShowSwitch("s2", true)
	for _, want := range []string{`netcraq_chain_frozen{chain="main"} 1`, `netcraq_chain_recovering{chain="main"} 1`, `netcraq_switch_ready{switch="s2"} 0`} {
		if !strings.Contains(frozen, want+"\n") {
			t.Errorf("no %s while frozen in:\n%s", want, frozen)
		}
	}
	text := metricsText(m)
	for _, want := range []string{
		`netcraq_chain_failover_seconds_count{chain="main"} 1`, `netcraq_chain_failover_seconds_sum{chain="main"} 0.15`,
		`netcraq_chain_recovery_seconds_count{chain="main"} 1`, `netcraq_chain_recovery_seconds_sum{chain="main"} 2`,
		`netcraq_chain_frozen_seconds_count{chain="main"} 1`, `netcraq_chain_frozen{chain="main"} 0`, `netcraq_chain_recovering{chain="main"} 0`,
		`netcraq_chain_member_lease{chain="main",switch="s1"} 1`, `netcraq_switch_ready{switch="s2"} 1`, `netcraq_chain_epoch{chain="main"} 8`,
		`netcraq_controller_events_total{chain="main",switch="s2",type="chain.failover"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if gone := `netcraq_chain_member_lease{chain="main",switch="s2"}`; strings.Contains(text, gone) {
		t.Errorf("a switch that is no member has %s", gone)
	}
}

func metricsText(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
