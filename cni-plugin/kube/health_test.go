package kube

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/guards"
)

// TestRestoredMetric checks that successful restorations are counted by kind, and that failed ones
// are not counted.
func TestRestoredMetric(t *testing.T) {
	h := newHealth()
	told := 0
	report := h.restored(func(string, string, error) { told++ })
	report(guards.Setting, "ipv4/ip_forward", nil)
	report(guards.FrameFilter, "ncqpod", errors.New("no program"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`netcraq_agent_restored_total{what="setting"} 1`,
		`netcraq_agent_restored_total{what="frame filter"} 0`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics does not have %s:\n%s", want, w.Body)
		}
	}
	if told != 2 {
		t.Errorf("the next is told %d times, not twice", told)
	}
}
