package lab

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// envBuilt is the environment variable with the folder of the commands that the test process and
// its children have built. They share the folder, because linking a command takes seconds.
const envBuilt = "NETCRAQ_TEST_BUILT"

// keepBuilt creates the folder, unless a parent process has created it. forget removes the folder.
func keepBuilt() (forget func(), err error) {
	if os.Getenv(envBuilt) != "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "netcraq-built-")
	if err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(dir) }, os.Setenv(envBuilt, dir)
}

// Built returns the path of a command of this module, which it builds on the first call.
func Built(t testing.TB, command string) string {
	t.Helper()
	dir := os.Getenv(envBuilt)
	if dir == "" {
		t.Fatal("the package's TestMain does not call lab.Main")
	}
	file := filepath.Join(dir, path.Base(command))
	if _, err := os.Stat(file); err == nil {
		return file
	}
	// the command is renamed into the shared folder when it is complete
	mine := filepath.Join(t.TempDir(), path.Base(command))
	if out, err := exec.Command("go", "build", "-o", mine, "github.com/netcraq/netcraq/"+command).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", command, err, out)
	}
	if err := os.Rename(mine, file); err != nil {
		t.Fatal(err)
	}
	return file
}
