package watchrules

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/overlay"
)

// mutants lists edits of the source, each of which disables a rule if `without` is the rule's name.
// The shipped source has no such switches, so TestMutants builds the tests with the edits.
var mutants = []struct{ rule, file, old, new string }{
	{"reads at a gap", "reads.go", `if version != before+1 {`, `if version != before+1 && (without != RULE ||
		version.Epoch() != before.Epoch()) {`},
	{"reads at a new epoch", "reads.go", `	m.learn(k, next)
`, `	m.learn(k, next)
	if without == RULE && version.Sequence() == before.Sequence()+1 {
		return
	}
`},
	{"rounds", "reads.go", `		k.due = k.began + m.config.Round
`, `		k.due = k.began + m.config.Round
		if without == RULE {
			k.due *= 1000
		}
`},
	{"rounds of what the network does not tell of", "reads.go", `	k.due = k.began + m.config.Unhelped
`, `	k.due = k.began + m.config.Unhelped
	if without == RULE {
		k.due *= 1000
	}
`},
	{"versions only grow, of notifications", "reads.go", `version <= before {`,
		`version <= before && without != RULE {`},
	{"versions only grow, of reads", "reads.go", `anew || r.Version > k.version {`,
		`anew || r.Version > k.version || without == RULE {`},
	{"a life after another", "reads.go", `anew := k.known &&`, `anew := without != RULE && k.known &&`},
	{"a read that began after the watcher came", "tell.go", `f.since < t {`, `(f.since < t || without == RULE) {`},
	{"nothing before that read", "tell.go", `		if f.fresh {
			m.offer(f)`, `		if f.fresh || without == RULE {
			m.offer(f)`},
	{"a read after the one under way", "reads.go", `	if k.again {`, `	if k.again && without != RULE {`},
	{"a failed read is done again", "reads.go", `	k.failures++
`, `	k.failures++
	if without == RULE {
		k.due += 1000 * m.config.Round
	}
`},
	{"the last gap counts", "reads.go", `		c.suspected = true
`, `		c.suspected = without != RULE || !c.ever || now >= c.checked+m.config.Suspect
`},
	{"what was overtaken is counted", "tell.go", `	f.pending, f.told =`, `	if without == RULE {
		out.Overtaken = 0
	}
	f.pending, f.told =`},
	{"a bound of reads", "reads.go", `len(m.reads) < m.config.Reads {`, `(len(m.reads) < m.config.Reads || without == RULE) {`},
	{"what nobody follows is not read", "machine.go", `	if last == 0 {
`, `	if last == 0 && without != RULE {
`},
	{"a KEY_ID of before says nothing", "machine.go", `		delete(m.ids, old)
`, `		if without != RULE {
			delete(m.ids, old)
		}
`},
	{"who has taken all is told again", "tell.go", `w.pending, w.ready = nil, false`, `w.pending, w.ready = nil, without == RULE`},
}

// TestMutants checks that if any one rule is disabled, a test fails.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: short")
	}
	binary := build(t)
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			var text string
			// run the quick tests first
			for _, tests := range []string{"TestScenarios", "TestEveryOrder|TestSimulation"} {
				run := exec.Command(binary, "-test.failfast", "-test.run=^("+tests+")$")
				run.Env = append(os.Environ(), "NETCRAQ_WITHOUT="+m.rule)
				out, err := run.CombinedOutput()
				text = string(out)
				if at := strings.Index(text, "--- FAIL"); err != nil && at >= 0 {
					t.Logf("%s", strings.SplitN(text[at:], "\n", 3)[1])
					return
				}
			}
			t.Errorf("not noticed: %s", text)
		})
	}
}

// build builds the tests with the edited sources. It returns the path of the test binary.
func build(t *testing.T) string {
	t.Helper()
	sources := overlay.Sources{"mutants_test.go": "",
		"without.go": "package watchrules\n\nimport \"os\"\n\nvar without = os.Getenv(\"NETCRAQ_WITHOUT\")\n"}
	for _, m := range mutants {
		sources.Edit(t, m.file, m.old, strings.ReplaceAll(m.new, "RULE", `"`+m.rule+`"`))
	}
	return sources.Build(t)
}
