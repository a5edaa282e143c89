package coordination

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/internal/testutil/overlay"
)

// mutants lists rules of the Service that the test can disable. For each rule it has an edit of the
// source code. The shipped Service has no such switches. TestMutants builds the tests once, with
// all edits.
var mutants = []struct{ rule, file, old, new string }{
	{"a lease is deleted by its version", "follow.go",
		`if item, _, err = s.store.CompareAndDelete(ctx, l.key.store(), item.Version); err != nil {`,
		`if leftOut == "a lease is deleted by its version" {
			item = store.Item{Key: item.Key}
			_, err = s.store.Delete(ctx, l.key.store())
		} else {
			item, _, err = s.store.CompareAndDelete(ctx, l.key.store(), item.Version)
		}
		if err != nil {`},
	{"a lease's time is waited for", "follow.go",
		`	s.arm(l, ttl+margin(ttl))
`, `	s.arm(l, ttl+margin(ttl))
	if leftOut == "a lease's time is waited for" {
		l.ttl = ttl / 3
		s.arm(l, l.ttl)
	}
`},
	{"the margin", "lease.go", `{ return ttl / 8 }`, `{
	switch leftOut {
	case "the margin":
		return -ttl / 8
	case "the margin is for clocks that are slewed":
		return ttl / 100
	}
	return ttl / 8
}
`},
	{"the margin is for clocks that are slewed", "", "", ""},
	{"a lease that is gone never comes back", "lease.go", `		ttl, ok := s.see(k, item, false)
		if !ok {
			return 0, leaseGone(k)
		}
		next`, `		ttl, ok := s.see(k, item, false)
		if !ok && leftOut == "a lease that is gone never comes back" {
			ttl = 500 * time.Millisecond
			item.Value = cell.Cell{Kind: cell.Lease, TTLMillis: 500}.Encode()
		} else if !ok {
			return 0, leaseGone(k)
		}
		next`},
	{"unlock by token", "lock.go", `	if !item.Found || item.Version != version {`,
		`	if leftOut == "unlock by token" {
		version = item.Version
	}
	if !item.Found || item.Version != version {`},
	{"the token is the version", "lock.go", `	after, taken, err := t.s.swapAgain(`,
		`	defer func() {
		if leftOut == "the token is the version" {
			after.Version = wire.MakeVersion(1, uint64(c.Nonce[0]))
		}
	}()
	after, taken, err = t.s.swapAgain(`},
	{"the token is the version", "lock.go",
		`func (t *taking) take(ctx context.Context, item store.Item) (store.Item, bool, error) {`,
		`func (t *taking) take(ctx context.Context, item store.Item) (after store.Item, taken bool, err error) {`},
	{"a lock is taken over the version that was free", "lock.go", `	draw(c.Nonce[:])
`, `	draw(c.Nonce[:])
	if leftOut == "a lock is taken over the version that was free" {
		item, _ = t.s.store.Get(ctx, item.Key, false)
	}
	if leftOut == "the nonce" {
		c.Nonce = cell.Nonce{}
	}
`},
	{"a holder's lease is looked at", "lock.go", `	return k, !alive, err
`, `	return k, !alive || leftOut == "a holder's lease is looked at", err
`},
	{"the nonce", "", "", ""},
	{"a transaction compares the lock", "lock.go", `	done, err := s.store.Transact(ctx, t)
`, `	if leftOut == "a transaction compares the lock" {
		t.Compare = t.Compare[:1]
	}
	done, err := s.store.Transact(ctx, t)
`},
	{"what was taken unknowingly is given back", "lock.go", `	case err != nil && !nothingDone(err):
		t.s.behind`, `	case err != nil && leftOut == "what was taken unknowingly is given back":
	case err != nil && !nothingDone(err):
		t.s.behind`},
	{"unknown outcomes are looked into", "lease.go", `		unknown = unknown || !nothingDone(err)
`, `		unknown = unknown || !nothingDone(err)
		if leftOut == "unknown outcomes are looked into" {
			return item, false, nodeapi.Errorf(nodeapi.CodeUnavailable, "", "it failed")
		}
`},
	{"keys go with their lease", "follow.go", `	if len(l.bound) > 0 {
`, `	if len(l.bound) > 0 && leftOut != "keys go with their lease" {
`},
	{"the dead are swept", "sweep.go", `		case c.Kind == cell.Lease:
`, `		case leftOut == "the dead are swept":
		case c.Kind == cell.Lease:
`},
}

// overlaid is the source of a file with the switch that selects an edit.
const overlaid = `package coordination

import "os"

var leftOut = os.Getenv("NETCRAQ_TEST_LEFT_OUT")
`

// mutantSeeds is the maximum number of random seeds that the test tries to detect a mutant.
const mutantSeeds = 400

// TestMutants checks that if any one rule is disabled, some history has an error.
func TestMutants(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
	binary := build(t)
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.rule] {
			continue
		}
		seen[m.rule] = true
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(binary, "-test.run=^TestHunt$", "-test.v", "-test.timeout=5m")
			cmd.Env = append(os.Environ(), "NETCRAQ_TEST_LEFT_OUT="+m.rule)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "noticed by seed") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// TestHunt runs random seeds until one of them detects that a rule is disabled.
func TestHunt(t *testing.T) {
	rule := os.Getenv("NETCRAQ_TEST_LEFT_OUT")
	if rule == "" {
		t.Skip("TestMutants runs it")
	}
	for seed := range uint64(mutantSeeds) {
		if broken := simulate(t, 1000+seed); len(broken) > 0 {
			t.Logf("%s: noticed by seed %d: %s", rule, 1000+seed, broken[0])
			return
		}
	}
	t.Errorf("%s: not noticed in %d seeds", rule, mutantSeeds)
}

// build builds the tests with all mutants.
func build(t *testing.T) string {
	t.Helper()
	sources := overlay.Sources{"overlaid.go": overlaid}
	for _, m := range mutants {
		if m.file != "" { // another mutant with this rule has the edit
			sources.Edit(t, m.file, m.old, m.new)
		}
	}
	return sources.Build(t)
}
