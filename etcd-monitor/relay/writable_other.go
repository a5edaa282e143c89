//go:build !linux

package relay

import "net"

// writableOf is for Linux alone.
func writableOf(net.Conn) func() bool { return nil }
