package lab

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// envBuilt names the folder of the commands that this package's tests and their children have
// built. They share it, because linking a command takes seconds.
const envBuilt = "NETCRAQ_TEST_BUILT"

// keepBuilt creates the folder, unless a parent process has. forget removes it.
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
	mine := filepath.Join(t.TempDir(), path.Base(command)) // renamed into the folder when it is complete
	if out, err := exec.Command("go", "build", "-o", mine, "github.com/netcraq/netcraq/"+command).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", command, err, out)
	}
	if err := os.Rename(mine, file); err != nil {
		t.Fatal(err)
	}
	return file
}
