package bmv2test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// FreeAddress chooses ports from this range. The range ends below the ports that the kernel assigns
// to connections (ip_local_port_range).
const firstPort, endOfPorts = 20100, 32700

var given sync.Map // the ports that FreeAddress has returned

// FreeAddress returns a loopback address, HOST:PORT, on which nobody listens. It never returns the
// same address twice.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(endOfPorts-firstPort)
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no TCP port is free on loopback")
	return ""
}

// ThriftFlags returns the flags that make BMv2 serve Thrift at the port of address. Without these
// flags, every BMv2 that was built with Thrift uses the same port. ThriftFlags returns no flags for
// a BMv2 without Thrift and for other switches.
func ThriftFlags(t testing.TB, binary, address string) []string {
	t.Helper()
	if filepath.Base(binary) != "simple_switch_grpc" {
		return nil
	}
	// The program exits with an error after it has printed the help.
	help, _ := exec.Command(binary, "--help").CombinedOutput()
	if !strings.Contains(string(help), "--thrift-port") {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--thrift-port", port}
}
