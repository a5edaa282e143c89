// Package before builds the release before this one from the repository's history, for tests that
// run it beside this one.
package before

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Commit is the release before this one. It moves when a release is made.
const Commit = "7597cebc4dbb840475be2a45d6c42e3f9043b088"

// Env names a folder with the commands of the release before. Unset, they are built.
const Env = "NETCRAQ_BEFORE"

// EnvMixed has tests run that need the release before: to build it takes minutes. `make upgrades`
// sets it.
const EnvMixed = "NETCRAQ_MIXED"

// Build builds commands of the release before and says in which folder they are. Those of tests
// (./test/...) are this checkout's, built against the libraries of the release before. A checkout
// without that commit (a shallow one) skips the test.
func Build(t *testing.T, commands ...string) (folder string) {
	t.Helper()
	if dir := os.Getenv(Env); dir != "" {
		return dir
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("skipped: this is no checkout of the repository, so the release before cannot be built")
	}
	top := strings.TrimSpace(string(root))
	if exec.Command("git", "-C", top, "cat-file", "-e", Commit+"^{commit}").Run() != nil {
		t.Skipf("skipped: the checkout has no commit %.12s, the release before: git fetch --unshallow", Commit)
	}
	source, out := t.TempDir(), t.TempDir()
	for _, step := range []string{
		`git -C "$1" archive "$2" | tar -x -C "$3"`,
		`cd "$1"; to=$3; shift 4; for c; do case $c in ./test/*) mkdir -p "$to/$c"; cp "$c"/*.go "$to/$c";; esac; done`,
		`cd "$3" && shift 3 && go build -trimpath -o "$@"`,
	} {
		args := append([]string{"-ec", step, "sh", top, Commit, source, out + "/"}, commands...)
		if b, err := exec.Command("sh", args...).CombinedOutput(); err != nil {
			t.Fatalf("building the release before: %v\n%s", err, b)
		}
	}
	t.Setenv(Env, out) // for what runs in a namespace
	return out
}
