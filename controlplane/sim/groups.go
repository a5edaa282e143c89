package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Groups of faults that have dice of their own, and can be left out, to see which of them a
// violation takes. The seeds of the others stay what they are.
const (
	groupLate    = "late"    // messages between controllers and switches (channels.go)
	groupWiped   = "wiped"   // switches that lose what they hold while they are connected (wipe.go)
	groupKeyless = "keyless" // chains that change while they have no keys (keyless.go)
	groupGarbage = "garbage" // registers that hold what an earlier chain has left (garbage.go)
	groupWorker  = "worker"  // a switch outside the chain that somebody has taken over (worker.go)
)

var groups = map[string]bool{groupLate: true, groupWiped: true, groupKeyless: true, groupGarbage: true,
	groupWorker: true}

// Groups is which groups of faults are not left out.
func Groups() (out []string) {
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		if groups[g] {
			out = append(out, g)
		}
	}
	return out
}

// SetGroups leaves out all groups of faults but these. Call it before any simulator runs.
func SetGroups(names []string) error {
	for _, n := range names {
		if _, ok := groups[n]; !ok {
			return fmt.Errorf("there is no group of faults %q; there is: %s", n, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
		}
	}
	for g := range groups {
		groups[g] = slices.Contains(names, g)
	}
	return nil
}
