// Package testport finds TCP ports for the servers of tests.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports that are given: none of those that the kernel gives to connections
// (ip_local_port_range), or a server that dies and comes back would find its port taken by one.
const first, behind = 20100, 32700

// given are the ports that this process has given. A server listens at its port only after a while,
// and parallel tests ask meanwhile.
var given sync.Map

// Free is a loopback address that nobody listens at, HOST:PORT. It gives no address twice.
func Free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(behind-first)
		if _, before := given.LoadOrStore(port, true); before {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no TCP port is free on loopback")
	return ""
}
