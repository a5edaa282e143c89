//go:build !linux

package relay

import "net"

// Unannounced is for Linux alone.
func Unannounced(nc net.Conn) net.Conn { return nc }
