package logbook

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Coverage is how often things happened, by name: what became of packets (packets.…, the P4
// program's events), what the controller's machine said (chain.…), what the network, the faults and
// the clients did.
type Coverage map[string]int

// Count counts something that happened n times.
func (c Coverage) Count(what string, n int) { c[what] += n }

// Add adds another run's.
func (c Coverage) Add(other Coverage) {
	for k, n := range other {
		c[k] += n
	}
}

// Write writes it as a table.
func (c Coverage) Write(w io.Writer) error {
	for _, k := range slices.Sorted(maps.Keys(c)) {
		if _, err := fmt.Fprintf(w, "%12d  %s\n", c[k], k); err != nil {
			return err
		}
	}
	return nil
}
