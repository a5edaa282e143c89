//go:build !linux

package relay

import "net"

// Unannounced is only for Linux.
func Unannounced(nc net.Conn) net.Conn { return nc }
