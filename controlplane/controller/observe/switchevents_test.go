package observe

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSwitchEvents: scrapes show the switches' counters, and read them at most once in countersAge.
func TestSwitchEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reads := NewMetrics(), 0
		m.Registry.MustRegister(NewSwitchEvents(func(ctx context.Context) map[string]map[string]uint64 {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != countersWait {
				t.Errorf("a scrape waits until %v for switches", end)
			}
			reads++
			return map[string]map[string]uint64{"s1": {"read_clean": uint64(10 * reads), "drop_ttl": 0}}
		}))
		for _, c := range []struct {
			after time.Duration
			want  string
		}{{0, "10"}, {countersAge - 1, "10"}, {1, "20"}} {
			time.Sleep(c.after)
			text := metricsText(m)
			for _, want := range []string{`{event="read_clean",switch="s1"} ` + c.want, `{event="drop_ttl",switch="s1"} 0`} {
				if want = "netcraq_switch_events_total" + want + "\n"; !strings.Contains(text, want) {
					t.Errorf("%v later: no %s in:\n%s", c.after, want, text)
				}
			}
		}
	})
}
