//go:build !linux

package relay

import "net"

// writableOf returns nil, because only Linux has an implementation.
func writableOf(net.Conn) func() bool { return nil }
