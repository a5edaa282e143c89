package controller_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPartsTogether: a switch that is in none of many chains gets its parts of all of them in a few
// writes, and not in several for each chain.
func TestPartsTogether(t *testing.T) {
	const chains = 20
	f := newFakes(t, func(top map[string]any) {
		var all []map[string]any
		for i := range chains {
			all = append(all, map[string]any{"id": i, "name": fmt.Sprint("c", i), "address": fmt.Sprintf("10.0.254.%d", i+1),
				"members": []string{"s1"}, "leaseMillis": 0, "patienceMillis": 0})
		}
		top["chains"] = all
	})
	c, _ := f.start()
	ready(t, c)
	until(t, c, "s3 has its part of all chains", func() bool {
		return len(f.tables(2, "chain_config")) == chains && strings.Count(strings.Join(f.tables(2, "ipv4_lpm"), "\n"),
			"10.0.254.") == chains
	})
	if n := len(f.servers[2].Batches()); n >= chains {
		t.Errorf("%d writes to s3 for its parts of %d chains", n, chains)
	}
}
