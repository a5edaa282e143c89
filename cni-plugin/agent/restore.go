package agent

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
)

// Restore repairs attachments whose filters or settings another program has removed or changed.
func (a *Agent) Restore(report guards.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.records {
		if r.State != agentapi.Ready {
			continue
		}
		l, err := linkOf(r)
		if err != nil { // the interface has gone, and a DEL will follow
			continue
		}
		if lacking := lacksFilters(l.Attrs().Index, r); len(lacking) > 0 {
			err := a.guard(l.Attrs().Index, r)
			if _, gone := linkOf(r); gone != nil {
				continue // the interface has gone meanwhile
			}
			for _, what := range lacking {
				report(what, r.Host.Name, err)
			}
		}
		if r.Chained { // another plugin owns the settings of a chained interface
			continue
		}
		for path, value := range settingsOf(r) {
			changed, err := setSysctl(path, value)
			if errors.Is(err, os.ErrNotExist) {
				break // the interface has gone meanwhile
			}
			if changed || err != nil {
				report(guards.Setting, path, err)
			}
		}
	}
}

// lacksFilters returns the names of filters that an interface should have but lacks. It omits a
// filter if looking for it fails.
func lacksFilters(index int, r *agentapi.Record) (out []string) {
	if there, err := ingressfilter.Attached(index); err == nil && !there {
		out = append(out, guards.IngressFilter)
	}
	if there, err := ingressfilter.EgressAttached(index); r.Chained && err == nil && !there {
		out = append(out, guards.EgressFilter)
	}
	if there, err := framefilter.Attached(index); err == nil && !there {
		out = append(out, guards.FrameFilter)
	}
	return out
}

// RestoreForwarding calls EnableForwarding again if another program has disabled forwarding.
func RestoreForwarding(report guards.Report) {
	do := []func() (string, bool, error){forwardIPv4}
	// Routes from Router Advertisements are at risk only until the setting is written. Searching
	// for them is slow on a node with many routes.
	if b, err := os.ReadFile(filepath.Join(sysctls, "net", allForwarding)); err == nil && string(b) != "1\n" {
		do = append(do, forwardIPv6)
	}
	for _, f := range do {
		if path, changed, err := f(); changed || err != nil && !errors.Is(err, os.ErrNotExist) {
			report(guards.Setting, path, err)
		}
	}
}
