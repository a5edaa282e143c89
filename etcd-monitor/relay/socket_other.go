//go:build !linux

package relay

import "net"

// Unannounced returns nc: it is implemented only for Linux.
func Unannounced(nc net.Conn) net.Conn { return nc }
