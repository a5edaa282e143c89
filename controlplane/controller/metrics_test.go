package controller_test

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSwitchEventsMetric: /metrics shows what switches count, without those that do not answer.
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
