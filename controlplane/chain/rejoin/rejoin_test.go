package rejoin

import (
	"testing"
	"time"
)

// TestFlappingSwitch: a chain's epochs last for more than a year, even if one of its switches comes
// and goes all the time or cannot be filled. A switch that is seldom lost is brought in at once.
func TestFlappingSwitch(t *testing.T) {
	// A recovery uses four epochs: shadow, frozen, tail, and later the chain without the switch. A
	// failed recovery uses two: shadow, and the chain without the switch.
	const epochs, perRecovery, perFailedRecovery = 65535, 4, 2
	at := Candidate{"c", "node-1"}
	for _, c := range []struct {
		what  string
		lasts time.Duration // time from the switch's return until it is lost again
		costs int
		days  int // minimum number of days that the epochs must last
	}{
		{"lost at once", 0, perRecovery, 365}, {"lost after a minute", time.Minute, perRecovery, 365},
		{"lost every hour", time.Hour, perRecovery, 365}, {"lost twice a day", 12 * time.Hour, perRecovery, 3650},
		{"cannot be filled", 0, perFailedRecovery, 365},
	} {
		p := New(Default())
		used, now, waited := 0, time.Duration(0), time.Duration(0)
		for used+c.costs <= epochs && now < 10*365*24*time.Hour {
			p.Away(at)
			p.There(now, at)
			due, ok := p.Due(now, at)
			if !ok {
				t.Fatal("it is there, and is never brought in")
			}
			waited, now = due-now, due
			p.Tried(now, at)
			used += c.costs
			now += c.lasts
		}
		days := int(now / (24 * time.Hour))
		t.Logf("%s: %d epochs in %d days, %.0f a day; at last it was waited for %v", c.what, used, days,
			float64(used)/float64(days), waited)
		if days < c.days {
			t.Errorf("%s: the epochs are used up after %d days", c.what, days)
		}
	}
}

// TestWait: the history of one switch in one chain does not affect others, and is forgiven after a
// while.
func TestWait(t *testing.T) {
	d := Default()
	p, at := New(d), Candidate{"c", "node-1"}
	p.Tried(0, at)
	for _, other := range []Candidate{{"c", "node-2"}, {"d", "node-1"}} {
		if w := p.Wait(0, other); w != d.Settle {
			t.Errorf("%v waits %v for what another did", other, w)
		}
	}
	if w := p.Wait(time.Minute, at); w != 2*d.Settle {
		t.Errorf("the second time it waits %v", w)
	}
	if w := p.Wait(d.Forgiven, at); w != d.Settle {
		t.Errorf("after %v it waits %v", d.Forgiven, w)
	}
	if p.Tried(d.Forgiven, Candidate{"d", "other"}); len(p.trials) != 1 {
		t.Errorf("what was forgiven is still known: %v", p.trials)
	}
	for i, want := range []time.Duration{1, 2, 4, 4, 4, 4, 4, 4, 8, 16} {
		if w := p.Wait(d.Forgiven, Candidate{"d", "flaps"}); w != want*d.Settle {
			t.Errorf("after %d times it waits %v", i, w)
		}
		p.Tried(d.Forgiven, Candidate{"d", "flaps"})
	}
	p.There(d.Forgiven, at)
	p.Tried(d.Forgiven, at)
	p.Later(d.Forgiven+d.Settle, at)
	if due, _ := p.Due(d.Forgiven+d.Settle, at); due != d.Forgiven+2*d.Settle {
		t.Errorf("one that could not be taken in for no fault of its own is tried again at %v", due-d.Forgiven)
	}
	if p.Away(at); len(p.later) > 0 {
		t.Errorf("one that is away is put off: %v", p.later)
	}
	for range 30 {
		p.Tried(d.Forgiven, at)
	}
	if w := p.Wait(d.Forgiven, at); w != d.Longest {
		t.Errorf("in the end it waits %v", w)
	}
	p.Forget(at)
	if w := p.Wait(d.Forgiven, at); w != d.Settle {
		t.Errorf("one that was forgotten waits %v", w)
	}
}

// TestSteady: the steady time counts only while the switch is connected without interruption.
func TestSteady(t *testing.T) {
	const s = time.Second
	p, at := New(For(10*s)), Candidate{"c", "s1"}
	due := func(now, want time.Duration) {
		t.Helper()
		got, ok := p.Due(now, at)
		if ok != (want > 0) || got != want {
			t.Errorf("at %v it is due at %v (%v), not %v", now, got, ok, want)
		}
	}
	due(0, 0)
	p.Again(0, at) // this call has no effect, because the switch is not connected
	due(0, 0)
	p.There(1*s, at)
	p.There(2*s, at)
	due(3*s, 11*s)
	p.Away(at)
	due(4*s, 0)
	p.There(5*s, at)
	due(5*s, 15*s)
	p.Again(7*s, at)
	due(7*s, 17*s)
	p.Tried(17*s, at)
	due(17*s, 27*s)
	p.SetPolicy(For(0))
	due(17*s, 0)
	p.SetPolicy(For(time.Second))
	due(17*s, 9*s)
}

// TestWholeWithinTheTrouble: if a switch comes and goes for up to a minute, it is brought in once
// it has been steady for at most four times Settle. If it comes and goes for longer, the required
// steady time is at most as long as the trouble was.
func TestWholeWithinTheTrouble(t *testing.T) {
	at := Candidate{"c", "s1"}
	for trouble := time.Second; trouble < 30*time.Minute; trouble += 7 * time.Second {
		for _, up := range []time.Duration{0, time.Second, 10 * time.Second} {
			p, now := New(Default()), time.Duration(0)
			for now < trouble {
				p.Away(at)
				p.There(now, at)
				now, _ = p.Due(now, at)
				if now < trouble {
					p.Tried(now, at)
					now += up
				}
			}
			p.Away(at)
			p.There(trouble, at)
			due, _ := p.Due(trouble, at)
			longest := max(min(trouble, 4*Default().Settle), Default().Settle)
			if trouble > time.Minute {
				longest = trouble
			}
			if due-trouble > longest+Default().Settle {
				t.Fatalf("after trouble of %v it waits for %v", trouble, due-trouble)
			}
		}
	}
}
