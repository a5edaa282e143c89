// Package passing receives memory that a node's server shares with a client. It provides
// connections over the Unix socket, the file descriptors that arrive with the bytes read, and
// mappable files.
package passing

import (
	"context"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Dial connects to a server. If socket is empty, nodeapi.FindSocket determines the address. If the
// address is not a Unix socket, the error advises the user to do what the parameter `instead` says.
func Dial(ctx context.Context, socket, instead string) (*net.UnixConn, error) {
	if socket == "" {
		socket = nodeapi.FindSocket(os.Getenv)
	}
	if strings.HasPrefix(socket, "tcp://") {
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, instead, "memory is passed by a Unix socket only")
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", strings.TrimPrefix(socket, "unix://"))
	if err != nil {
		return nil, err
	}
	return nc.(*net.UnixConn), nil
}

// Descriptors returns the file descriptors that arrived with a read. The caller must close them.
func Descriptors(rights []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// Close closes file descriptors.
func Close(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Whole reports whether a file has at least the stated length, and is sealed so that its length
// cannot change. Without the seal, another process could shorten the file, and a program that reads
// beyond its end is killed by SIGBUS.
func Whole(fd int, size int64) bool {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return false
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0 && size > 0 && info.Size == size
}
