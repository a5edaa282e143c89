// Package testport finds free TCP ports for test servers.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// first and behind are the limits of the range of returned ports. The range is outside of the
// kernel's ip_local_port_range. Otherwise an outgoing connection could take the port of a server
// that is being restarted.
const first, behind = 20100, 32700

// given holds the ports that this process has returned. A server listens at its port only after a
// while, and parallel tests need other ports meanwhile.
var given sync.Map

// Free returns a loopback address (HOST:PORT) at which nobody listens. It never returns an address
// twice.
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
