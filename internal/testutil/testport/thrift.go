package testport

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Thrift are the flags that give a BMv2 a Thrift port of its own, where it was built with Thrift,
// as the P4 project's packages are: all would take the same one. Other switches need none.
func Thrift(t testing.TB, binary string) []string {
	t.Helper()
	if filepath.Base(binary) != "simple_switch_grpc" {
		return nil
	}
	help, _ := exec.Command(binary, "--help").CombinedOutput() // it ends with an error
	if !strings.Contains(string(help), "--thrift-port") {
		return nil
	}
	_, port, err := net.SplitHostPort(Free(t))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--thrift-port", port}
}
