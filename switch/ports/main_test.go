package ports

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// inNamespace is an environment variable. It is set in the copy of the test program that runs in a
// network namespace of its own.
const inNamespace = "NETCRAQ_PORTS_TEST_NETNS"

// TestMain runs the tests in a new network namespace. The namespace disappears with the process,
// however the process ends. If TestMain may not create a namespace, tests that need interfaces are
// skipped (see needLinks).
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "no network namespace:", err)
		os.Exit(m.Run())
	}
}

// needLinks skips a test that creates interfaces, if the process may not create them.
func needLinks(t testing.TB) {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs root, to create interfaces in a network namespace of its own")
	}
}
