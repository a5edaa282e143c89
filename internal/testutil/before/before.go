// Package before builds the last release from the repository's history, for tests that run it
// alongside this tree.
package before

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// releases is the file that lists the released versions. Its path starts at the root of the
// repository.
const releases = "mk/release/releases"

// Env names a folder with the commands of the last release. If it is unset, Build builds the
// commands.
const Env = "NETCRAQ_BEFORE"

// EnvMixed turns on the tests that build the last release, which takes minutes. `make upgrades`
// sets it.
const EnvMixed = "NETCRAQ_MIXED"

// Build builds commands of the last release, and returns their folder. A command is its path from
// the root of the repository, for example ./cmd/netcraqctl. Build skips the test unless EnvMixed is
// set and the checkout has the release's commit (a shallow checkout may lack it).
func Build(t *testing.T, commands ...string) (folder string) {
	t.Helper()
	if os.Getenv(EnvMixed) == "" {
		t.Skipf("skipped: %s is not set: this test builds the last release (make upgrades)", EnvMixed)
	}
	if dir := os.Getenv(Env); dir != "" {
		return dir
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("skipped: this is not a checkout of the repository, so the last release cannot be built")
	}
	top := strings.TrimSpace(string(root))
	list, err := os.ReadFile(filepath.Join(top, releases))
	if err != nil {
		t.Fatal(err)
	}
	version, commit, err := newest(string(list))
	if err != nil {
		t.Fatalf("%s: %v", releases, err)
	}
	if exec.Command("git", "-C", top, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Skipf("skipped: the checkout lacks the commit of %s. Run git fetch --unshallow", version)
	}
	source, out := t.TempDir(), t.TempDir()
	run(t, version, "sh", "-ec", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", top, commit, source)
	for _, command := range commands {
		module := filepath.Join(source, command)
		for module != source && !exists(filepath.Join(module, "go.mod")) {
			module = filepath.Dir(module)
		}
		run(t, version, "go", "-C", module, "build", "-trimpath", "-o", out+"/", filepath.Join(source, command))
	}
	t.Logf("built %s", version)
	t.Setenv(Env, out) // the process that the test starts in a namespace needs the variable, too
	return out
}

// newest returns the first release in the text of the file of releases.
func newest(list string) (version, commit string, err error) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] != "#" {
			return fields[0], fields[1], nil
		}
	}
	return "", "", fmt.Errorf("it lists no release; a line is a version and a commit")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs one command of the build.
func run(t *testing.T, version string, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", version, err, b)
	}
}
