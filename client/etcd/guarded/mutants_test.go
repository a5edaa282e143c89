package guarded

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/internal/testutil/overlay"
)

// mutants are the rules that can be disabled. They are the rules in doc.go, and two rules of
// placement that the simulated world obeys.
var mutants = []string{
	"guard", "exclusive", "break wait", "key order", "session condition", "directory condition",
	"give up", "words", "publish CAS", "populate CAS", "populate clear", "not found",
	"lease", "sealed", "seal key", "seal version", "clear once", "forged stays",
	"header", "ahead", "handed on", "remembered", "published late", "reuse of KEY_IDs", "order of removal",
}

// edits change the source of the shipped server so that each rule can be disabled by its name.
// TestMutants builds the simulator from edited copies, because the shipped server has no such
// switches.
var edits = []struct{ file, old, new string }{
	{"write.go", `	keys := s.placedIn(w)
`, `	keys := s.placedIn(w)
	if s.without == "guard" {
		keys = nil
	}
	if s.without == "key order" && s.number.Load()%2 == 1 {
		slices.Reverse(keys)
	}
`},
	{"guard.go", `if now.cell.Kind == slotcodec.Guard {`, `if now.cell.Kind == slotcodec.Guard && s.without != "exclusive" {`},
	{"guard.go", `alive, err := s.alive(ctx, now.cell.Lease, &limit); err != nil || alive {`, `alive, err := s.alive(ctx, now.cell.Lease, &limit); (err != nil || alive) && s.without != "break wait" {`},
	{"read.go", `alive, err := s.alive(ctx, now.cell.Lease, &limit); err != nil || alive {`, `alive, err := s.alive(ctx, now.cell.Lease, &limit); err != nil || alive && s.without != "break wait" {`},
	{"transaction.go", `if t.lease != 0 {
		all`, `if t.lease != 0 && s.without != "session condition" {
		all`},
	{"transaction.go", `	h := boundingRange(t.work.spans)
	all := []*pb.Compare{placement.Fence(s.Prefix, h.Key, h.End, t.known)}
`, `	h := boundingRange(t.work.spans)
	all := []*pb.Compare{placement.Fence(s.Prefix, h.Key, h.End, t.known)}
	if s.without == "directory condition" {
		all = nil
	}
`},
	{"write.go", `		s.Observer.GuardedWrite("unknown")
`, `		s.Observer.GuardedWrite("unknown")
		if s.without == "give up" {
			for _, g := range t.guards {
				g.before = []byte{byte(slotcodec.Clear)}
			}
			s.finishGuards(ctx, t.guards, s.release)
			return nil, nil, err
		}
`},
	{"write.go", `	case err != nil && !etcderrors.Definite(err):
`, `	case err != nil && !etcderrors.Definite(err) && !(s.without == "words" && etcderrors.Code(err) == codes.ResourceExhausted):
`},
	{"guard.go", `	version, err := s.cas(ctx, g.key, g.version, b)
`, `	if s.without == "publish CAS" {
		if now, err := s.look(ctx, g.key); err == nil {
			g.version = now.version
		}
	}
	version, err := s.cas(ctx, g.key, g.version, b)
`},
	{"read.go", `		s.cas(ctx, k, at.version, b)
`, `		if s.without == "populate CAS" {
			if now, err := s.look(ctx, k); err == nil && now.cell.Kind != slotcodec.Guard {
				at = now
			}
		}
		s.cas(ctx, k, at.version, b)
`},
	{"read.go", `		s.breakStaleGuard(ctx, k, at)
`, `		s.breakStaleGuard(ctx, k, at)
		if s.without == "populate clear" {
			return nil, &seen{k, at, true}
		}
`},
	{"guard.go", `		if isGone(err) {
			g.unknown = false
			return err
		}
`, `		if isGone(err) && s.without != "not found" {
			g.unknown = false
			return err
		}
		if isGone(err) {
			err = nil
		}
`},
	{"read.go", `	case isGone(err):
		s.miss`, `	case isGone(err) && s.without == "not found":
		return nil, &seen{k, at, true}
	case isGone(err):
		s.miss`},
	{"slot.go", `case kv.Lease != 0:`, `case kv.Lease != 0 && s.without != "lease":`},
	{"slot.go", `case string(b) == slotcodec.Unsealed && version == wire.Version(k.Version):`, `case string(b) == slotcodec.Unsealed && (version == wire.Version(k.Version) || s.without == "clear once"):`},
	{"slot.go", `	}
	return s.Seals`, `	case s.without == "sealed" && len(b) > 0 && b[0]&slotcodec.Sealed == 0:
		return b, nil
	}
	return s.Seals`},
	{"slot.go", `	return seal.Place{Name: k.Name, ID: wire.Key(k.ID), Version: version}
`, `	at := seal.Place{Name: k.Name, ID: wire.Key(k.ID), Version: version}
	if s.without == "seal key" {
		at.Name, at.ID = "", 0
	}
	if s.without == "seal version" {
		at.Version = 0
	}
	return at
`},
	{"guard.go", `nobodys = now.forged; nobodys != nil {`,
		`nobodys = now.forged; nobodys != nil && s.without != "forged stays" {`},
	{"guard.go", `version: left.version, before: left.after}, nil`, `version: left.version,
			before: map[bool][]byte{false: left.after, true: left.before}[s.without == "handed on"]}, nil`},
	{"guard.go", `	case isChanged(err) && remembered:`, `	case isChanged(err) && remembered && s.without == "remembered":
		if now, err = s.look(ctx, g.key); err == nil {
			if version, err = s.cas(ctx, g.key, now.version, mine); err == nil {
				g.version = version
				return true, nil
			}
		}
		return false, nil
	case isChanged(err) && remembered:`},
	{"write.go", `	t.work.rest = func() { s.publishAll(ctx, t.guards) }
`, `	t.work.rest = func() { s.publishAll(ctx, t.guards) }
	if s.without == "published late" {
		for _, g := range t.guards {
			if version, err := s.cas(ctx, g.key, g.version, g.before); err == nil {
				g.version = version
			}
		}
	}
`},
	{"read.go", `	if !s.Open() {`, `	if s.without == "header" {
		revision = newest
	}
	if !s.Open() {`},
	{"read.go", `if at.revision() > newest {`, `if at.revision() > newest && s.without != "ahead" {`},
	{"server.go", `	forged     map[wire.Key]forged
}
`, `	forged     map[wire.Key]forged

	without string
}
`},
	{"write.go", `	"context"
	"errors"
`, `	"context"
	"errors"
	"slices"
`},
}

// leaveOut disables a rule of a server. In the shipped server it does nothing. The file overlaid
// replaces it when the edits are applied.
var leaveOut = func(*Server, string) {}

// overlaid is the file that defines leaveOut for the edited server.
const overlaid = `package guarded

func init() { isOverlaid, leaveOut = true, func(s *Server, rule string) { s.without = rule } }
`

var isOverlaid = false

// simulator lists the test files that the simulator needs. It is built without the other test
// files, because they need etcd's server.
var simulator = []string{
	"fakeetcd_test.go", "simgateway_test.go", "simworld_test.go", "sim_test.go", "mutants_test.go",
	"sizes_test.go",
}

// If any one rule is disabled, some run finds an error.
func TestMutants(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("skipped: with the race detector this takes minutes; make test runs it without")
	}
	if isOverlaid {
		for _, rule := range mutants {
			t.Run(rule, func(t *testing.T) { hunt(t, rule) })
		}
		return
	}
	out, err := exec.Command(build(t), "-test.run=^TestMutants$", "-test.v").CombinedOutput()
	t.Logf("%s", out)
	if err != nil || strings.Count(string(out), ": noticed by seed") != len(mutants) {
		t.Errorf("%v; %d mutants are to be noticed", err, len(mutants))
	}
}

// build builds the simulator's tests from the edited sources.
func build(t *testing.T) string {
	t.Helper()
	sources := overlay.Sources{"overlaid_test.go": overlaid}
	for _, e := range edits {
		sources.Edit(t, e.file, e.old, e.new)
	}
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tests {
		if !slices.Contains(simulator, name) {
			sources[name] = ""
		}
	}
	return sources.Build(t)
}

// mutantSeeds is the number of seeds within which a mutant must be detected.
const mutantSeeds = 6000

// hunt runs seeds until one detects that a rule is disabled.
func hunt(t *testing.T, rule string) {
	var next, found atomic.Uint64
	var mu sync.Mutex
	var how string
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for found.Load() == 0 {
				seed := next.Add(1)
				if seed > mutantSeeds {
					return
				}
				if w := simulate(seed, simSteps, rule, false); len(w.broken) > 0 {
					mu.Lock()
					if found.CompareAndSwap(0, seed) {
						how = w.broken[0]
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if found.Load() == 0 {
		t.Fatalf("not noticed in %d seeds", mutantSeeds)
	}
	t.Logf("%s: noticed by seed %d: %s", rule, found.Load(), strings.TrimSpace(how))
}
