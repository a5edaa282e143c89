// Package testport finds TCP ports for the servers of tests.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that are given: none of those that the kernel gives to connections
// (ip_local_port_range), or a server that dies and comes back would find its port taken by one.
const first, behind = 20100, 32700

// Free is a loopback address that nobody listens at, HOST:PORT.
func Free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(behind-first)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no TCP port is free on loopback")
	return ""
}
