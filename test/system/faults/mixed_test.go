package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/before"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// envMixed has tests run that build the release before.
const envMixed = before.EnvMixed

// mixedCommands are those of the release before that tests run beside this one's.
var mixedCommands = []string{"./controlplane/cmd/netcraq-controller",
	"github.com/netcraq/netcraq/switch/cmd/netcraq-switch",
	"./client/cmd/netcraqctl", "./etcd-monitor/cmd/etcd-monitor", "./nodeapi/cmd/netcraq-sidecar",
	"./test/system/lab/nodeprogram"}

// TestMixedVersions has a network of the release before, under load, and brings it to this one,
// part by part, and back: the controller (its state file goes along both ways), each switch, and
// the command line. In between parts of both work together. Nothing is lost, what clients were told
// is linearizable, and for each step the longest wait is said.
func TestMixedVersions(t *testing.T) {
	buildBefore(t)
	for _, engine := range []string{"interp", "auto"} {
		t.Run(engine, func(t *testing.T) { mixedVersions(t, engine) })
	}
}

// buildBefore builds the release before, once, outside of the test's namespace.
func buildBefore(t *testing.T) {
	t.Helper()
	if os.Getenv(envMixed) == "" {
		t.Skipf("skipped: %s is not set: it builds the release before (make upgrades)", envMixed)
	}
	if os.Getenv(lab.EnvInside) == "" {
		lab.BuildBefore(t, mixedCommands...)
	}
}

// upgradeRing is three switches in a ring, and a chain over all of them whose lease outlasts the
// change of a controller: reads go on meanwhile. Members are taken out before they are replaced.
func upgradeRing() lab.Layout {
	l := lab.Line(3, 4000)
	l.Links = append(l.Links, [2]int{3, 1})
	l.Chains[0].Patience = 60_000
	return l
}

// topologyOf is a file for a controller of this release, or of the former one.
func topologyOf(nw *lab.Network, name string, former bool) string {
	return nw.File(name, func(top topologytest.Object) {
		top["sessions"].(topologytest.Object)["ttlSeconds"] = 60
		if former { // it knows no such field, and refuses what it does not know
			delete(top["chains"].([]any)[0].(topologytest.Object), "rejoinMillis")
		}
	})
}

// replaceController has another program and topology take a controller's place: c is that one.
func replaceController(nw *lab.Network, c *lab.Controller, program, topology string) {
	c.Stop()
	next := nw.RunController(program, topology, "state.json")
	c.API, c.Stop = next.API, next.Stop
}

// span is a step of an upgrade, and when it was.
type span struct {
	what     string
	from, to time.Time
}

// release is the commands of one.
type release struct{ controller, sw, ctl, topology string }

func mixedVersions(t *testing.T, engine string) {
	if !lab.InNamespace(t) {
		return
	}
	l := upgradeRing()
	nw := lab.NewNetwork(t, engine, l)
	former := filepath.Clean(os.Getenv(lab.EnvBefore))
	old := release{filepath.Join(former, "netcraq-controller"), filepath.Join(former, "netcraq-switch"),
		filepath.Join(former, "netcraqctl"), topologyOf(nw, "old.json", true)}
	now := release{lab.Built(t, "controlplane/cmd/netcraq-controller"), lab.Built(t, "switch/cmd/netcraq-switch"),
		lab.Built(t, "cmd/netcraqctl"), topologyOf(nw, "new.json", false)}
	for i := 1; i <= l.N; i++ {
		nw.KillSwitch(i)
		nw.Use(old.sw)
		nw.StartSwitch(i)
	}
	c := nw.RunController(old.controller, old.topology, "state.json")
	c.WaitReady()
	load := startLoad(t, nw, c, clients, 20*time.Minute)
	from := time.Now()
	var spans []span
	step := func(what string, do func()) {
		t.Helper()
		begin := time.Now()
		do()
		c.WaitUntil(func() bool { ch := c.Chain(); return len(ch.Members) == l.N && ch.Ready }, what+": the chain to be whole")
		time.Sleep(300 * time.Millisecond)
		spans = append(spans, span{what, begin, time.Now()})
	}
	ctl := func(r release, args ...string) {
		t.Helper()
		b, err := exec.Command(r.ctl, append([]string{"--admin", c.URL}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("netcraqctl %s: %v\n%s\n%s", strings.Join(args, " "), err, b, c.History())
		}
	}
	controllers := func(what string, r release) {
		step("controller: "+what, func() {
			replaceController(nw, c, r.controller, r.topology)
			load.moved()
		})
	}
	switches := func(what string, which []string, r release, by release) {
		for _, name := range which {
			step(name+": "+what, func() {
				i := int(name[1] - '0')
				ctl(by, "chain", "fail", name)
				nw.KillSwitch(i)
				nw.Use(r.sw)
				nw.StartSwitch(i)
				c.WaitUntil(func() bool {
					all, err := c.API.Switches(t.Context())
					return err == nil && all[i-1].Ready
				}, name+" to be set up")
				ctl(by, "chain", "recover", name)
			})
		}
	}
	all := []string{"s1", "s2", "s3"}
	step("all of before", func() { time.Sleep(time.Second) })
	switches("up, by the controller and the command line of before", all[:1], now, old)
	controllers("up", now)
	switches("up, by the command line of before", all[1:2], now, old)
	switches("up", all[2:], now, now)
	for _, args := range [][]string{{"chain", "show"}, {"switch", "list"}, {"events"}, {"switch", "counters", "s1"}} {
		ctl(old, args...)
	}
	step("all of now", func() { time.Sleep(time.Second) })
	switches("down", all[:1], old, now)
	controllers("down", old)
	for _, args := range [][]string{{"chain", "show"}, {"switch", "list"}, {"events"}, {"switch", "counters", "s1"}} {
		ctl(now, args...)
	}
	switches("down, by the controller of before", all[1:], old, now)
	controllers("up again, with switches of before", now)
	controllers("down again", old)
	load.end(from, time.Now(), 1000)
	for _, s := range spans {
		t.Logf("%-60s longest without a write %5.0f ms, without a read %5.0f ms", s.what,
			lab.LongestGap(lab.WritesDone(load.history), s.from, s.to),
			lab.LongestGap(lab.ReadsDone(load.history), s.from, s.to))
	}
}
