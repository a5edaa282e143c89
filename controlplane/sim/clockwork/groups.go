package clockwork

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Groups of faults that have dice of their own, and can be left out, to see which of them a
// violation takes. The seeds of the others stay what they are.
const (
	GroupLate    = "late"    // messages between controllers and switches (world/channels.go)
	GroupWiped   = "wiped"   // switches that lose what they hold while they are connected (trouble/wipe.go)
	GroupKeyless = "keyless" // chains that change while they have no keys (trouble/keyless.go)
	GroupGarbage = "garbage" // registers that hold what an earlier chain has left (trouble/garbage.go)
	GroupWorker  = "worker"  // a switch outside the chain that somebody has taken over (trouble/worker.go)
)

// Included says which groups of faults there are: all, unless SetGroups has left some out.
var Included = map[string]bool{GroupLate: true, GroupWiped: true, GroupKeyless: true, GroupGarbage: true,
	GroupWorker: true}

// Groups is which groups of faults are not left out.
func Groups() (out []string) {
	for _, g := range slices.Sorted(maps.Keys(Included)) {
		if Included[g] {
			out = append(out, g)
		}
	}
	return out
}

// SetGroups leaves out all groups of faults but these. Call it before any simulator runs.
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
