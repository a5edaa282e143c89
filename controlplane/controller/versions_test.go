package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/buildinfo"
)

// minorFrom returns this tree's version with its minor version changed by add.
func minorFrom(t *testing.T, add int) string {
	t.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(buildinfo.Version(), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if minor+add < 0 {
		t.Skipf("skipped: %d.%d has no minor version before it", major, minor)
	}
	return fmt.Sprintf("%d.%d.7", major, minor+add)
}

// TestVersions: each member of a chain is shown with the version that its switch reports. The
// chain's status and an event warn about two versions that are not tested together, until one of
// the two is replaced.
func TestVersions(t *testing.T) {
	next, far := minorFrom(t, 1)+"-rc1", minorFrom(t, 2)
	f := newFakes(t, nil)
	f.servers[0].Version, f.servers[1].Version = buildinfo.Version(), next
	c, _ := f.start()
	ready(t, c)
	versions := func() (out []string) {
		ch, err := c.Chain(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ch.Members {
			out = append(out, m.Version)
		}
		return append(out, ch.VersionWarning)
	}
	warnings := func() (at []string) {
		events, _ := c.Events(0)
		for _, e := range events {
			if e.Type == "switch.version-untested" {
				at = append(at, e.Switch)
			}
		}
		return at
	}
	if got := versions(); !slices.Equal(got, []string{buildinfo.Version(), next, "", ""}) || warnings() != nil {
		t.Errorf("with consecutive versions, and one that is not known: %q\n%s", got, eventText(c))
	}

	replace := func(says, version string) {
		t.Helper()
		f.servers[2].Stop()
		f.servers[2].Version = says
		if err := f.servers[2].Start(); err != nil {
			t.Fatal(err)
		}
		until(t, c, "s3 to show its version", func() bool {
			all, err := c.Switches(t.Context())
			return err == nil && all[2].Version == version && all[2].Ready
		})
	}
	replace(far, far)
	want := "the controller has version " + buildinfo.Version() + " and s3 has version " + far
	got := versions()
	if got[2] != far || !strings.HasPrefix(got[3], want) || !strings.HasSuffix(got[3], "Upgrade the controller") {
		t.Errorf("with %s: %q, want a warning %q", far, got, want)
	}
	waitText(t, c, "switch.version-untested", want)
	if at := warnings(); !slices.Equal(at, []string{"s3"}) {
		t.Errorf("events for %q, want one for s3", at)
	}
	replace(next, next)
	if got := versions(); got[2] != next || got[3] != "" {
		t.Errorf("with %s again: %q", next, got)
	}
	// BMv2 reports no version. A hostile switch may report a long text, which must not fill the
	// events.
	for _, says := range []string{"", "not a version", far + "-" + strings.Repeat("a", 1<<14)} {
		replace(says, "")
		if got := versions(); got[2] != "" || got[3] != "" {
			t.Errorf("with %.40q, which is not a version: %q", says, got)
		}
		replace(next, next)
	}
	if at := warnings(); !slices.Equal(at, []string{"s3"}) {
		t.Errorf("events for %q, want one for s3", at)
	}
}

// TestVersionsOfMembers: versions of members are also compared with each other, and the warning
// says to upgrade the oldest.
func TestVersionsOfMembers(t *testing.T) {
	f := newFakes(t, nil)
	above, below := minorFrom(t, 1), minorFrom(t, -1)
	f.servers[0].Version, f.servers[1].Version = above, below
	c, _ := f.start()
	ready(t, c)
	chains, err := c.Chains(t.Context())
	want := fmt.Sprintf("s2 has version %s and s1 has version %s", below, above)
	if err != nil || !strings.HasPrefix(chains[0].VersionWarning, want) ||
		!strings.HasSuffix(chains[0].VersionWarning, "Upgrade s2") {
		t.Errorf("%q, %v, want %q", chains[0].VersionWarning, err, want)
	}
	until(t, c, "an event", func() bool {
		events, _ := c.Events(0)
		return slices.ContainsFunc(events, func(e admin.Event) bool {
			return e.Type == "switch.version-untested" && strings.HasPrefix(e.Message, want)
		})
	})
}
