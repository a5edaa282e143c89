package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/before"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestMixedNodes upgrades node API servers and then the controller from the last release to this
// version, and then downgrades them. One server hands its sockets over to its successor, and
// another one is restarted. Meanwhile programs with the client library of either release increment
// one key through two servers. No increment may be lost, no number may be returned twice, and no
// program may read a number below its own last result. The test logs the longest wait of each step.
func TestMixedNodes(t *testing.T) {
	before.Build(t, "./controlplane/cmd/netcraq-controller", "./nodeapi/cmd/netcraq-sidecar",
		"./test/system/lab/nodeprogram")
	if lab.InNamespace(t) {
		mixedNodes(t)
	}
}

// counted is the output of a program (test/system/lab/nodeprogram).
type counted struct {
	Numbers, Writes, Reads []int64
	Unknown, Refused       int
	Wrong                  []string
}

func mixedNodes(t *testing.T) {
	l := upgradeRing()
	nw := lab.NewNetwork(t, "auto", l)
	former := os.Getenv(before.Env)
	type binaries struct{ controller, server, program string }
	old := binaries{filepath.Join(former, "netcraq-controller"), filepath.Join(former, "netcraq-sidecar"),
		filepath.Join(former, "nodeprogram")}
	now := binaries{lab.Built(t, "controlplane/cmd/netcraq-controller"), lab.Built(t, "nodeapi/cmd/netcraq-sidecar"),
		lab.Built(t, "test/system/lab/nodeprogram")}
	topology := upgradeTopology(nw)
	c := nw.RunController(old.controller, topology, "state.json")
	c.WaitReady()

	hosts := [2]int{1, 3}
	socket := func(i int) string { return filepath.Join(nw.Dir(), fmt.Sprintf("node%d.sock", i+1)) }
	var servers [2]lab.Process
	start := func(i int, r binaries, more ...string) {
		t.Helper()
		name := fmt.Sprintf("node%d", i+1)
		servers[i] = nw.Run(hosts[i], name, append([]string{r.server, "--listen", "unix://" + socket(i),
			"--admin", "unix://" + filepath.Join(nw.Dir(), "controller.sock"), "--namespace", "shop", "--node", name,
			"--grace", "5s"}, more...)...)
		poll.Until(t, 60*time.Second, name+" listens", func() bool {
			conn, err := net.Dial("unix", socket(i))
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	start(0, old)
	start(1, old)

	end := filepath.Join(t.TempDir(), "end")
	type program struct {
		what string
		cmd  *exec.Cmd
		out  bytes.Buffer
	}
	var programs []*program
	for i := range 4 {
		r := [2]binaries{old, now}[i%2]
		p := &program{what: fmt.Sprintf("a program of %s at node %d", [2]string{"before", "now"}[i%2], 1+i/2)}
		p.cmd = exec.Command(r.program, socket(i/2), "counter", end)
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	var spans []span
	step := func(what string, do func()) {
		t.Helper()
		begin := time.Now()
		do()
		time.Sleep(1500 * time.Millisecond)
		spans = append(spans, span{what, begin, time.Now()})
	}
	handOver := func(what string, r binaries) {
		t.Helper()
		step("node 1: "+what+", by hand-over", func() {
			former := servers[0]
			start(0, r, "--take-over")
			select {
			case <-former.Ended: // The former server has handed its sockets over.
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: the former server has not ended", what)
			}
		})
	}
	restart := func(what string, r binaries) {
		t.Helper()
		step("node 2: "+what+", by a restart", func() {
			servers[1].Stop()
			start(1, r)
		})
	}
	controllers := func(what string, r binaries) {
		t.Helper()
		step("controller: "+what, func() {
			replaceController(nw, c, r.controller, topology)
			c.WaitReady()
		})
	}
	step("all of before", func() {})
	handOver("up", now)
	restart("up", now)
	controllers("up", now)
	handOver("down", old)
	restart("down", old)
	controllers("down", old)
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all []int64
	told := make([]counted, len(programs))
	unknown := 0
	for i, p := range programs {
		err := p.cmd.Wait()
		r := &told[i]
		if err != nil || json.Unmarshal(p.out.Bytes(), r) != nil {
			t.Fatalf("%s: %v\n%s", p.what, err, p.out.Bytes())
		}
		for _, wrong := range r.Wrong {
			t.Errorf("%s: %s", p.what, wrong)
		}
		if len(r.Numbers) < 100 || len(r.Reads) < 50 {
			t.Errorf("%s counted %d times, and read %d times", p.what, len(r.Numbers), len(r.Reads))
		}
		t.Logf("%s: counted %d times, %d more of unknown outcome, %d refused; read %d times", p.what, len(r.Numbers),
			r.Unknown, r.Refused, len(r.Reads))
		all = append(all, r.Numbers...)
		unknown += r.Unknown
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("%d of %d counts were given twice", len(all)-n, len(all))
	}
	reader, err := node.Connect(t.Context(), node.Config{Socket: socket(0), Agent: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(t.Context())
	item, err := reader.Get(t.Context(), "counter")
	var sum int
	if err == nil {
		_, err = fmt.Sscan(string(item.Value), &sum)
	}
	if err != nil || sum < len(all) || sum > len(all)+unknown {
		t.Errorf("at the end the counter is %q, %v; %d counts were acknowledged, and %d are of unknown outcome",
			item.Value, err, len(all), unknown)
	}
	for _, s := range spans {
		write, read := 0.0, 0.0
		for _, r := range told {
			write = max(write, lab.LongestGap(r.Writes, s.from, s.to))
			read = max(read, lab.LongestGap(r.Reads, s.from, s.to))
		}
		t.Logf("%-35s longest that a program was without a write %5.0f ms, without a read %5.0f ms", s.what, write, read)
	}
}
