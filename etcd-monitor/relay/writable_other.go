//go:build !linux

package relay

import "net"

// writableOf returns nil: it is implemented only for Linux.
func writableOf(net.Conn) func() bool { return nil }
