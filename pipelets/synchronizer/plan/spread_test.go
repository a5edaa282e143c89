package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

// assign applies an assignment. It returns the number of pipelets that moved, and each replica's
// number of workers.
func assign(all []pipeletapi.Pipelet, to map[string]string) (moved int, load map[string]int) {
	load = map[string]int{}
	for i := range all {
		p := &all[i]
		if on := to[p.Namespace+"/"+p.Name]; on != p.Status.Assigned {
			p.Status.Assigned = on
			moved++
		}
		if !p.Spec.Suspend {
			load[p.Status.Assigned] += len(p.Spec.Src) * len(p.Spec.Dst)
		}
	}
	return moved, load
}

func many(n int) (all []pipeletapi.Pipelet) {
	for i := range n {
		all = append(all, pipelet(fmt.Sprintf("a/p%d", i), "", 0, etcd("http://a:1", fmt.Sprintf("%d/", i), ""),
			etcd("http://b:1", "x/", "")))
	}
	return all
}

// TestSpread checks that new replicas get their share, that other replicas take over the pipelets
// of a dead replica, and that no other pipelet moves.
func TestSpread(t *testing.T) {
	all := many(12)
	step := func(want string, moves int, replicas ...string) {
		t.Helper()
		moved, load := assign(all, Spread(all, replicas, true))
		if got := fmt.Sprint(load); got != want || moved != moves {
			t.Errorf("%v: %s with %d moves, want %s with %d", replicas, got, moved, want, moves)
		}
	}
	step("map[r1:12]", 12, "r1")
	step("map[r1:6 r2:6]", 6, "r1", "r2")
	step("map[r1:6 r2:6]", 0, "r2", "r1")
	step("map[r1:4 r2:4 r3:4]", 4, "r1", "r2", "r3")
	step("map[r1:6 r3:6]", 4, "r1", "r3") // only the pipelets of r2 move
	all = all[:9]
	step("map[r1:4 r3:5]", 0, "r1", "r3")
	for i := range all {
		all[i].Spec.Suspend = i > 0
	}
	step("map[r3:1]", 0, "r1", "r3")
	if got := Spread(all, nil, true); got != nil {
		t.Errorf("without replicas: %v", got)
	}
}

// TestSpreadTogether checks that pipelets that share a reader stay together, even transitively.
// They must not be separated to balance the load.
func TestSpreadTogether(t *testing.T) {
	load, other := etcd("http://a:1", "load/", ""), etcd("http://a:1", "other/", "")
	dst := etcd("http://b:1", "x/", "")
	both := pipelet("a/both", "", 0, load, dst)
	both.Spec.Src = append(both.Spec.Src, other)
	all := []pipeletapi.Pipelet{pipelet("a/p1", "", 0, load, dst), pipelet("a/p2", "", 0, other, dst), both,
		pipelet("a/late", "", 1, load, dst)} // this pipelet has another interval, so it has another reader
	on := Spread(all, []string{"r1", "r2"}, true)
	if on["a/p1"] != on["a/both"] || on["a/p2"] != on["a/both"] || on["a/late"] == on["a/both"] {
		t.Errorf("%v", on)
	}
	if on := Spread(all, []string{"r1", "r2"}, false); on["a/p1"] == on["a/both"] && on["a/p2"] == on["a/both"] {
		t.Errorf("not consolidated: %v", on)
	}
	assign(all, Spread(all, []string{"r1", "r2"}, true))
	var b strings.Builder
	if err := Print(&b, Readers(all)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"load/, as records come, on r1\n", "load/, every 1 s, on r2\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plan has no %q:\n%s", want, b.String())
		}
	}
}

// TestSpreadRandom makes random changes, and checks the assignment. Each pipelet must have a live
// replica, and replicas must not share readers. A second call must move nothing. The loads may
// differ by at most the largest part plus the slack.
func TestSpreadRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	all := many(0)
	for round := range 500 {
		for range rng.IntN(8) {
			p := pipelet(fmt.Sprintf("a/n%d-%d", round, len(all)), "", 0, etcd("http://a:1", fmt.Sprint(rng.IntN(40)), ""),
				etcd("http://b:1", "x/", ""))
			if rng.IntN(8) == 0 {
				p.Spec.Src = append(p.Spec.Src, etcd("http://a:1", fmt.Sprint(40+rng.IntN(40)), ""))
			}
			p.Spec.Suspend = rng.IntN(10) == 0
			all = append(all, p)
		}
		for range min(len(all), rng.IntN(8)) {
			k := rng.IntN(len(all))
			all = append(all[:k], all[k+1:]...)
		}
		var replicas []string
		for r := range 5 {
			if rng.IntN(3) > 0 || r == 4 {
				replicas = append(replicas, fmt.Sprint("r", r))
			}
		}
		_, load := assign(all, Spread(all, replicas, true))
		readers, total, largest := map[string]string{}, 0, 0
		for i := range all {
			p := &all[i]
			for s := range p.Spec.Src {
				key := Key(p, s)
				if on := readers[key]; on != "" && on != p.Status.Assigned {
					t.Fatalf("round %d: %s is read by %s and by %s", round, key, on, p.Status.Assigned)
				}
				readers[key] = p.Status.Assigned
			}
		}
		for _, p := range partition(all, true) {
			total, largest = total+p.weight, max(largest, p.weight)
		}
		high, low := 0, total
		for _, r := range replicas {
			high, low = max(high, load[r]), min(low, load[r])
			delete(load, r)
		}
		if len(load) > 0 {
			t.Fatalf("round %d: those who are gone have %v", round, load)
		}
		if slack := 2 * (total/(10*len(replicas)) + 1); high-low > largest+slack {
			t.Errorf("round %d: from %d to %d workers, with parts of %d at most", round, low, high, largest)
		}
		if moved, _ := assign(all, Spread(all, replicas, true)); moved > 0 {
			t.Fatalf("round %d: a second look moves %d", round, moved)
		}
	}
}
