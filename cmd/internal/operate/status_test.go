package operate

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/refchain"
)

// TestStatus checks that a switch of another controller is a problem, with exit code 5.
func TestStatus(t *testing.T) {
	c := newController(t, refchain.Config{})
	env := map[string]string{adminVariable: c.url}
	out, errs, code := ctl(t, env, "", "status", "--over", "100ms")
	if code != exitUnwell || !strings.Contains(out, "chain main   1 of 1 switches   0 of 100 keys   ") ||
		!strings.Contains(out, "PROBLEM: s1: another controller is its primary one") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	rates := regexp.MustCompile(`keys   ([\d,]+) reads/s   (\d+) writes/s`).FindStringSubmatch(out)
	if rates == nil || rates[1] == "0" || rates[2] == "0" {
		t.Errorf("no rates of 1,000 reads and 10 writes: %s", out)
	}
	if out, errs, code := ctl(t, env, "", "status", "--over", "1h"); code != exitUsage || !strings.Contains(errs, "100ms to 1m") {
		t.Errorf("--over 1h: exit code %d: %s%s", code, out, errs)
	}
	if out, errs, code := ctl(t, env, "", "-o", "json", "status", "--over", "100ms"); code != exitUnwell || !strings.Contains(out, `"problems": [`) || errs != "" {
		t.Errorf("-o json: exit code %d: %s%s", code, out, errs)
	}
}

// TestProblems checks that each kind of problem is reported once.
func TestProblems(t *testing.T) {
	well := func() *status {
		return &status{
			Switches: []admin.Switch{{Name: "s1", P4Runtime: "s1:1", Connected: true, Primary: true, Ready: true}},
			Chains: []chainStatus{{Chain: admin.Chain{Name: "main", Ready: true, Slots: 100, Keys: 89, Length: 1,
				Members: []admin.Member{{Switch: "s1", Ready: true, LeaseLive: true}}}}},
			Placement: &admin.Placement{},
		}
	}
	if got := problems(well()); len(got) > 0 {
		t.Errorf("all is well: %q", got)
	}
	for _, c := range []struct {
		spoil func(s *status)
		want  []string
	}{
		{func(s *status) { s.Switches[0].Connected, s.Switches[0].LastError = false, "refused" }, []string{"s1: the controller cannot reach it at s1:1: refused"}},
		{func(s *status) { s.Switches[0].Primary = false }, []string{"s1: another controller is its primary one"}},
		{func(s *status) { s.Switches[0].Ready = false }, []string{"s1: it is not set up"}},
		{func(s *status) { s.Chains[0].Frozen = true },
			[]string{"chain main is frozen and takes no writes; netcraq chain set main --frozen=false ends that"}},
		{func(s *status) { s.Chains[0].Ready, s.Chains[0].Reason = false, "s1" }, []string{"chain main is not ready: s1"}},
		{func(s *status) {
			s.Chains[0].Length = 2
			s.Chains[0].Missing = []admin.MissingMember{{Switch: "s2", Why: "it is away"}}
		},
			[]string{"chain main has 1 of 2 members", "s2 is missing in chain main: it is away"}},
		{func(s *status) { s.Chains[0].Members[0].LeaseLive = false },
			[]string{"s1 has no live lease in chain main: reads are not answered there"}},
		{func(s *status) { s.Chains[0].VersionWarning = "s1 and s2" }, []string{"chain main: s1 and s2"}},
		{func(s *status) { s.Chains[0].Keys = 90 }, []string{"chain main has 90 of 100 slots in use"}},
		{func(s *status) { s.Placement.Problem = "etcd is away" }, []string{"no key of etcd is placed or removed: etcd is away"}},
	} {
		s := well()
		c.spoil(s)
		if got := problems(s); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
