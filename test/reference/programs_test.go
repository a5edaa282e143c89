package reference

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/refpage"
)

// programs are the programs that have a reference page with their flags. netcraq itself has a page
// for each of its commands.
var programs = []struct{ name, module, of, story string }{
	{"netcraq-switch", "switch", "./cmd/netcraq-switch", "[The switch](../switch.md) explains engines, hooks and BMv2's options"},
	{"netcraq-controller", ".", "./controlplane/cmd/netcraq-controller", "[Operate a network](../operations.md) explains them"},
	{"netcraq-sidecar", ".", "./nodeapi/cmd/netcraq-sidecar", "[The node API](../node-api.md) explains what it serves"},
	{"etcd-monitor", ".", "./etcd-monitor/cmd/etcd-monitor", "[Hot etcd keys](../etcd.md) explains the gateway"},
}

// TestPrograms checks that the reference page has the help text of every program that is not a
// command of netcraq.
func TestPrograms(t *testing.T) {
	var page strings.Builder
	page.WriteString(refpage.Head("The other programs", "the flags of the programs",
		"What `--help` of each program prints. [The command netcraq](cli.md) has a page of its own."))
	folder := t.TempDir()
	for _, p := range programs {
		binary := filepath.Join(folder, p.name)
		build := exec.Command("go", "build", "-C", filepath.Join(root, p.module), "-o", binary, p.of)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", p.name, err, out)
		}
		help, err := exec.Command(binary, "--help").Output()
		if err != nil {
			t.Fatalf("%s --help: %v", p.name, err)
		}
		if n := strings.Count(string(help), "\n"); n < 50 {
			t.Errorf("the help of %s has only %d lines", p.name, n)
		}
		for n, line := range strings.Split(string(help), "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("line %d of the help of %s is wider than 80 columns: %s", n+1, p.name, line)
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", p.name, p.story, strings.TrimSpace(string(help)))
	}
	refpage.Check(t, root, "programs.md", page.String())
}
