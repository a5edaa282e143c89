package clockwork

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Each group of faults has its own stream of random numbers. A group can be left out to find which
// groups a violation needs, and the streams of the other groups do not change.
const (
	GroupLate    = "late"    // late messages between controllers and switches (world/channels.go)
	GroupWiped   = "wiped"   // switches that lose their state while they are connected (trouble/wipe.go)
	GroupKeyless = "keyless" // chains that change while they have no keys (trouble/keyless.go)
	GroupGarbage = "garbage" // registers with an earlier chain's leftovers (trouble/garbage.go)
	GroupWorker  = "worker"  // a switch outside the chain that an attacker controls (trouble/worker.go)
)

// Included has the groups of faults that runs use. It has all groups, unless SetGroups has left
// some out.
var Included = map[string]bool{GroupLate: true, GroupWiped: true, GroupKeyless: true, GroupGarbage: true,
	GroupWorker: true}

// Groups returns the groups of faults that runs use, sorted.
func Groups() (out []string) {
	for _, g := range slices.Sorted(maps.Keys(Included)) {
		if Included[g] {
			out = append(out, g)
		}
	}
	return out
}

// SetGroups leaves out all groups of faults except the named ones. Call it before any simulator
// runs.
func SetGroups(names []string) error {
	for _, n := range names {
		if _, ok := Included[n]; !ok {
			return fmt.Errorf("there is no group of faults %q; there is: %s", n, strings.Join(slices.Sorted(maps.Keys(Included)), ", "))
		}
	}
	for g := range Included {
		Included[g] = slices.Contains(names, g)
	}
	return nil
}
