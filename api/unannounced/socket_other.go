//go:build !linux && !windows

package unannounced

import (
	"net"
	"syscall"
)

// Conn is only for Linux. Elsewhere it returns the connection unchanged.
func Conn(nc net.Conn) net.Conn { return nc }

// Arrived reports whether bytes have arrived that were not read yet.
func Arrived(fd uintptr) bool {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == nil && n > 0
}

// Write is write(2) on a socket that does not block, as [syscall.Write].
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
