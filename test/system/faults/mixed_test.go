package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/internal/testutil/before"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestMixedVersions upgrades a network under load from the last release to this version, and then
// downgrades it. It replaces the controller (whose state file both versions read), each switch, and
// the command line, one after the other. Between the steps, parts of both releases work together.
// No write may be lost, and the clients' history must be linearizable. The test logs the longest
// wait of each step.
func TestMixedVersions(t *testing.T) {
	before.Build(t, "./controlplane/cmd/netcraq-controller", "github.com/netcraq/netcraq/switch/cmd/netcraq-switch", "./cmd/netcraqctl")
	for _, engine := range []string{"interp", "auto"} {
		t.Run(engine, func(t *testing.T) { mixedVersions(t, engine) })
	}
}

// upgradeRing returns a layout of three switches in a ring, with one chain over all of them. The
// chain's leases outlast the replacement of a controller, so reads continue meanwhile. Members
// leave the chain before they are replaced.
func upgradeRing() lab.Layout {
	l := lab.Line(3, 4000)
	l.Links = append(l.Links, [2]int{3, 1})
	l.Chains[0].Patience = 60_000
	return l
}

// upgradeTopology writes the topology file that the controllers of both releases read.
func upgradeTopology(nw *lab.Network) (file string) {
	return nw.File("upgrade.json", func(top topologytest.Object) {
		top["sessions"].(topologytest.Object)["ttlSeconds"] = 60
	})
}

// replaceController stops a controller, and starts another controller program with the same state
// file. *c then describes the new process.
func replaceController(nw *lab.Network, c *lab.Controller, program, topology string) {
	c.Stop()
	next := nw.RunController(program, topology, "state.json")
	c.API, c.Stop = next.API, next.Stop
}

// span is a step of an upgrade, with its start and end.
type span struct {
	what     string
	from, to time.Time
}

// release has the paths of a release's commands.
type release struct{ controller, sw, ctl string }

func mixedVersions(t *testing.T, engine string) {
	if !lab.InNamespace(t) {
		return
	}
	l := upgradeRing()
	nw := lab.NewNetwork(t, engine, l)
	former := os.Getenv(before.Env)
	old := release{filepath.Join(former, "netcraq-controller"), filepath.Join(former, "netcraq-switch"),
		filepath.Join(former, "netcraqctl")}
	now := release{lab.Built(t, "controlplane/cmd/netcraq-controller"), lab.Built(t, "switch/cmd/netcraq-switch"),
		lab.Built(t, "cmd/netcraqctl")}
	topology := upgradeTopology(nw)
	for i := 1; i <= l.N; i++ {
		nw.KillSwitch(i)
		nw.Use(old.sw)
		nw.StartSwitch(i)
	}
	c := nw.RunController(old.controller, topology, "state.json")
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
			replaceController(nw, c, r.controller, topology)
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
	for _, m := range c.Chain().Members {
		if m.Version != buildinfo.Version() {
			t.Errorf("%s has the version %q, want %q", m.Switch, m.Version, buildinfo.Version())
		}
	}
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
