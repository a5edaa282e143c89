package exactlyonce

import (
	"os/exec"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/overlay"
)

// TestMutants removes each rule in turn, and checks that the test of TestCrashes then fails.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests once for each rule")
	}
	for name, edit := range map[string][2]string{
		"unknown is taken for done": {`		m.do = Open
	case a.Do == Commit || a.Do == Flow:`, `		m.known, m.do = a.Next, Read
	case a.Do == Commit || a.Do == Flow:`},
		"the position stays":     {`State{Position: m.read.To,`, `State{Position: m.known.Position,`},
		"the flow's table stays": {`Table: m.table}`, `Table: m.known.Table}`},
		"it goes on from what it remembers": {`		m.known = r.State
`, `		if m.known == (State{}) {
			m.known = r.State
		}
`},
		"the rows that did not fit are left out": {`		m.max = max(1, m.read.Records/2)
		m.do = Read
`, `		m.known.Position = m.read.To
		m.do = Read
`},
	} {
		t.Run(name, func(t *testing.T) {
			s := overlay.Sources{}
			s.Edit(t, "machine.go", edit[0], edit[1])
			if out, err := exec.Command(s.Build(t), "-test.run", "^TestCrashes$").CombinedOutput(); err == nil {
				t.Errorf("nobody notices:\n%s", out)
			}
		})
	}
}
