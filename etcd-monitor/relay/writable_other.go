//go:build !linux

package relay

import "net"

// writableOf is only for Linux.
func writableOf(net.Conn) func() bool { return nil }
