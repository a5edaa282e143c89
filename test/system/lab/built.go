package lab

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// envBuilt names the folder of the commands that this package's tests and their children have
// built: linking one takes seconds of a processor, and each test would do it again.
const envBuilt = "NETCRAQ_TEST_BUILT"

// keepBuilt makes the folder, unless a parent has; it goes with forget.
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

// Built is a command of this module, built when it is asked for the first time.
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
	mine := filepath.Join(t.TempDir(), path.Base(command)) // it comes there as a whole
	if out, err := exec.Command("go", "build", "-o", mine, "github.com/netcraq/netcraq/"+command).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", command, err, out)
	}
	if err := os.Rename(mine, file); err != nil {
		t.Fatal(err)
	}
	return file
}
