// Package js runs the tests of the Node.js library in client/js, which is an npm package.
package js

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const oldest = 18 // the oldest supported Node.js, as in package.json

// TestNode runs the library's own tests against the real server. The server's store is in memory.
func TestNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed (Debian's package nodejs): the Node.js library is not tested")
	}
	said, err := exec.Command(node, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(said))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		t.Skipf("Node.js %s is older than %d: the Node.js library is not tested", version, oldest)
	}
	memserver := filepath.Join(t.TempDir(), "memserver")
	if out, err := exec.Command("go", "build", "-o", memserver, "../../../nodeapi/internal/memserver").
		CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	files, err := filepath.Glob("../../../client/js/test/*.test.*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, node, append([]string{"--test", "--test-reporter", "spec"}, files...)...)
	run.Env = append(os.Environ(), "NETCRAQ_MEMSERVER="+memserver)
	run.WaitDelay = 5 * time.Second
	out, err := run.CombinedOutput()
	t.Logf("%s\n%s", version, out)
	if err != nil {
		t.Fatal(err)
	}
	// With a server, no test may be skipped. Any skipped tests are listed above.
	if m := regexp.MustCompile(`(?m)skipped (\d+)$`).FindSubmatch(out); m == nil || string(m[1]) != "0" {
		t.Fatal("not all tests were run")
	}
}
