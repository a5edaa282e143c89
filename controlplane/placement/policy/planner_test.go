package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestRandomHeat: under any load, no key moves more often than MinResidency and Cooldown allow, all
// moves stay within the budget, and there are never more keys than slots. Once the heat is
// constant, the hottest keys are placed, within ReplaceRatio.
func TestRandomHeat(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := DefaultLimits()
		l.MovesPerMinute, l.Burst = 60, 10
		p, err := NewPlanner(l)
		if err != nil {
			t.Fatal(err)
		}
		const slots = 20
		keys := make([]Key, 100)
		for i := range keys {
			keys[i] = Key{Name: fmt.Sprintf("/k%03d", i), Heard: true, Value: Value{Known: true, Bytes: 10}}
		}
		rules := NewRules("/gw/")
		last := map[string]time.Time{}
		moved, placed := 0, 0
		for s := range 40 * 60 {
			now := start.Add(time.Duration(s) * time.Second)
			if s < 30*60 {
				for i := range keys {
					switch n := r.IntN(100); {
					case n < 10:
						keys[i].Heat = Heat{Reads: r.ExpFloat64() * 50, Writes: r.ExpFloat64()}
					case n < 12:
						keys[i].Heat = Heat{}
					}
					keys[i].Heard = r.IntN(50) > 0
				}
			} else {
				for i := range keys {
					keys[i].Heard = true
				}
			}
			moves, verdicts := p.Decide(Input{Now: now, Keys: keys, Chains: []Chain{{Name: "main",
				Cell: 1024, Free: slots - placed, Ready: true}}, Rules: rules})
			if len(verdicts) != len(keys) {
				t.Fatalf("seed %d: %d verdicts", seed, len(verdicts))
			}
			for _, m := range moves {
				var k *Key
				for i := range keys {
					if keys[i].Name == string(m.Key) {
						k = &keys[i]
					}
				}
				if at, ok := last[k.Name]; ok && now.Sub(at) < min(l.MinResidency, l.Cooldown) {
					t.Fatalf("seed %d: %s moves again after %v", seed, k.Name, now.Sub(at))
				}
				last[k.Name] = now
				moved++
				if m.Op == Place {
					k.Chain, k.Since = m.Chain, now
					placed++
				} else {
					k.Chain = ""
					placed--
				}
				if placed > slots || placed < 0 {
					t.Fatalf("seed %d: %d keys in %d slots", seed, placed, slots)
				}
			}
			if limit := float64(l.Burst) + l.MovesPerMinute*now.Sub(start).Minutes(); float64(moved) > limit {
				t.Fatalf("seed %d: %d moves in %v", seed, moved, now.Sub(start))
			}
		}
		in, out := math.Inf(1), 0.
		for _, k := range keys {
			if k.Placed() {
				in = min(in, l.Score(k.Heat))
			} else {
				out = max(out, l.Score(k.Heat))
			}
		}
		if placed != slots || out >= l.ReplaceRatio*max(in, l.MinScore) {
			t.Errorf("seed %d: %d keys placed, the coldest with a score of %.1f, and one of %.1f is not", seed, placed, in, out)
		}
	}
}

func TestLimits(t *testing.T) {
	for name, spoil := range map[string]func(*Limits){
		"take turns":     func(l *Limits) { l.ReplaceRatio = 1 },
		"above 0":        func(l *Limits) { l.MinScore = math.NaN() },
		"two to replace": func(l *Limits) { l.Burst = 1 },
		"below 0":        func(l *Limits) { l.WriteCost = -1 },
		"a time":         func(l *Limits) { l.AdmitAfter = -1 },
		"compression":    func(l *Limits) { l.Compression = .5 },
	} {
		l := DefaultLimits()
		spoil(&l)
		if _, err := NewPlanner(l); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error that says %q, got %v", name, err)
		}
	}
}

// TestAwayIsBounded: keys that come and go for ever do not use up memory.
func TestAwayIsBounded(t *testing.T) {
	p, err := NewPlanner(DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Now: start, Chains: []Chain{{Name: "main", Cell: 1024, Free: 0, Ready: true}}, Rules: NewRules("")}
	for i := range 3 * maxAway {
		in.Keys = append(in.Keys, Key{Name: fmt.Sprint(i), Chain: "main", Value: Value{Known: true, Lease: true}})
	}
	if moves, _ := p.Decide(in); len(moves) != len(in.Keys) || len(p.away) != maxAway {
		t.Errorf("%d moves, %d remembered", len(moves), len(p.away))
	}
}
