//go:build !linux && !windows

package unannounced

import (
	"net"
	"syscall"
)

// Conn is only for Linux. Elsewhere it returns the connection unchanged.
func Conn(nc net.Conn) net.Conn { return nc }

// Write is write(2) on a socket that does not block, as [syscall.Write].
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
