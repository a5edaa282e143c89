package guarded

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// mutant is the protocol without one rule.
type mutant struct {
	name    string
	without rules
	world   worldRules
}

var mutants = []mutant{
	{name: "guard", without: rules{guard: true}},
	{name: "exclusive", without: rules{exclusive: true}},
	{name: "break wait", without: rules{breakWait: true}},
	{name: "key order", without: rules{keyOrder: true}},
	{name: "session condition", without: rules{session: true}},
	{name: "directory condition", without: rules{directory: true}},
	{name: "give up", without: rules{giveUp: true}},
	{name: "publish CAS", without: rules{publishCAS: true}},
	{name: "populate CAS", without: rules{populateCAS: true}},
	{name: "populate clear", without: rules{populateClear: true}},
	{name: "not found", without: rules{notFound: true}},
	{name: "lease", without: rules{lease: true}},
	{name: "sealed", without: rules{sealed: true}},
	{name: "seal key", without: rules{sealKey: true}},
	{name: "seal version", without: rules{sealVersion: true}},
	{name: "clear once", without: rules{clearOnce: true}},
	{name: "forged stays", without: rules{forgedStays: true}},
	{name: "header", without: rules{header: true}},
	{name: "ahead", without: rules{ahead: true}},
	{name: "reuse of KEY_IDs", world: worldRules{reuse: true}},
	{name: "order of removal", world: worldRules{order: true}},
}

// mutantSeeds is how many seeds a mutant may take to be noticed.
const mutantSeeds = 6000

// Without any one of the rules something is wrong in some run.
func TestMutants(t *testing.T) {
	if !testMutants {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			var next, found atomic.Uint64
			var mu sync.Mutex
			var how string
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					for found.Load() == 0 {
						seed := next.Add(1)
						if seed > mutantSeeds {
							return
						}
						if w := simulate(seed, simSteps, m.without, m.world, false); len(w.broken) > 0 {
							mu.Lock()
							if found.CompareAndSwap(0, seed) {
								how = w.broken[0]
							}
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
			if found.Load() == 0 {
				t.Fatalf("not noticed in %d seeds", mutantSeeds)
			}
			t.Logf("noticed by seed %d: %s", found.Load(), strings.TrimSpace(how))
		})
	}
}
