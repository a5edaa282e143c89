package logbook

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Coverage counts how often things happened, by name. The names are outcomes of packets (packets.…,
// the P4 program's events), events of the controller's machine (chain.…), events of the network,
// faults, and events of clients.
type Coverage map[string]int

// Count counts n occurrences of something.
func (c Coverage) Count(what string, n int) { c[what] += n }

// Add adds another run's counts.
func (c Coverage) Add(other Coverage) {
	for k, n := range other {
		c[k] += n
	}
}

// Write writes the counts as a table.
func (c Coverage) Write(w io.Writer) error {
	for _, k := range slices.Sorted(maps.Keys(c)) {
		if _, err := fmt.Fprintf(w, "%12d  %s\n", c[k], k); err != nil {
			return err
		}
	}
	return nil
}
