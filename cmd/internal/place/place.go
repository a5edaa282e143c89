// Package place has the default addresses of `netcraq dev`. Other commands search for the server at
// these addresses.
//
// A server owns one Unix socket, for the node API, and a folder next to it, SOCKET.d, with
// everything else: the controller's admin socket, its tokens, a lock.
package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
)

// Socket returns the default path of the node API's socket.
func Socket(getenv func(string) string) string { return nodeapi.DevSocket(getenv) }

// Folder returns the folder of the server that owns a socket.
func Folder(socket string) string { return socket + ".d" }

// AdminSocket returns the path of the admin API's socket. socket is the node API socket of the same
// server.
func AdminSocket(socket string) string { return filepath.Join(Folder(socket), "admin.sock") }

// Prepare makes the folder of a socket. It refuses the folder in /tmp if another user may have put
// something there.
func Prepare(socket string) error {
	dir := filepath.Dir(socket)
	if dir != nodeapi.DevFolder() {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nodeapi.CheckDevFolder()
}

// Release removes the folder of a socket if it is empty and Prepare has made it.
func Release(socket string) {
	if dir := nodeapi.DevFolder(); filepath.Dir(socket) == dir {
		_ = os.Remove(dir)
	}
}

// Candidates returns the paths at which a command searches for a node API's socket, in order. Each
// path comes with a description of its origin.
func Candidates(getenv func(string) string) (out [][2]string) {
	if s := getenv(nodeapi.SocketVariable); s != "" {
		return [][2]string{{s, "$" + nodeapi.SocketVariable}}
	}
	return [][2]string{{Socket(getenv), "netcraq dev"}, {nodeapi.DefaultSocket, "a node's server"}}
}

// NodeSocket returns the first candidate that exists, or "".
func NodeSocket(getenv func(string) string) string {
	for _, c := range Candidates(getenv) {
		if c[1] == "$"+nodeapi.SocketVariable || nodeapi.IsSocket(c[0]) {
			return c[0]
		}
	}
	return ""
}

// Admin returns the address at which commands search for a controller. It first tries the `netcraq
// dev` server with the node API socket, and then the controllers' default addresses. If socket is
// "", it uses the first candidate that exists.
func Admin(socket string, getenv func(string) string) string {
	if socket == "" {
		socket = Candidates(getenv)[0][0]
	}
	socket = strings.TrimPrefix(socket, "unix://")
	if at := AdminSocket(socket); filepath.IsAbs(at) && nodeapi.IsSocket(at) {
		return "unix://" + at + "," + admin.DefaultSocket()
	}
	return admin.DefaultSocket()
}
