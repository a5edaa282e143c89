package kube

import (
	"testing"
	"time"
)

// TestFlappingSwitch: a chain's epochs last for more than a year though one of its switches comes
// and goes all the time, or cannot be filled. A switch that is lost seldom is brought in at once.
func TestFlappingSwitch(t *testing.T) {
	// shadow, frozen, tail, and the chain without it; shadow, and the chain without it
	const epochs, perRecovery, perFailedRecovery = 65535, 4, 2
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := candidacy{"c", "node-1"}
	for _, c := range []struct {
		what  string
		lasts time.Duration // from being brought in until it is lost
		costs int
		days  int // that the epochs last at least
	}{
		{"lost at once", 0, perRecovery, 365}, {"lost after a minute", time.Minute, perRecovery, 365}, {"lost every hour", time.Hour, perRecovery, 365},
		{"lost twice a day", 12 * time.Hour, perRecovery, 3650}, {"cannot be filled", 0, perFailedRecovery, 365},
	} {
		p := rejoinDelays{}
		now := begin
		used, waited := 0, time.Duration(0)
		for used+c.costs <= epochs && now.Sub(begin) < 10*365*24*time.Hour {
			waited = p.wait(at, now)
			now = now.Add(waited)
			p.tried(at, now)
			used += c.costs
			now = now.Add(c.lasts)
		}
		days := int(now.Sub(begin) / (24 * time.Hour))
		t.Logf("%s: %d epochs in %d days, %.0f a day; at last it was waited for %v", c.what, used, days, float64(used)/float64(days), waited)
		if days < c.days {
			t.Errorf("%s: the epochs are used up after %d days", c.what, days)
		}
	}
	p := rejoinDelays{}
	p.tried(at, begin)
	for _, other := range []candidacy{{"c", "node-2"}, {"d", "node-1"}} {
		if w := p.wait(other, begin); w != settle {
			t.Errorf("%v waits %v for what another did", other, w)
		}
	}
	if w := p.wait(at, begin.Add(time.Minute)); w != 2*settle {
		t.Errorf("the second time it waits %v", w)
	}
	if w := p.wait(at, begin.Add(forgiven)); w != settle {
		t.Errorf("after %v it waits %v", forgiven, w)
	}
}
