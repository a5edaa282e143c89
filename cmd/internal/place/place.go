// Package place has the default addresses of `netcraq dev`, where the other commands search for it.
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

// Socket is the default path of the node API's socket.
func Socket(getenv func(string) string) string { return nodeapi.DevSocket(getenv) }

// Folder is the folder of the server with a socket.
func Folder(socket string) string { return socket + ".d" }

// AdminSocket is the path of the admin API's socket of the server with a node API socket.
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

// Release removes the folder of a socket if Prepare has made it and it is empty.
func Release(socket string) {
	if dir := nodeapi.DevFolder(); filepath.Dir(socket) == dir {
		_ = os.Remove(dir)
	}
}

// Candidates are the paths at which a command searches for a node API's socket, in order, each with
// its origin in words.
func Candidates(getenv func(string) string) (out [][2]string) {
	if s := getenv(nodeapi.SocketVariable); s != "" {
		return [][2]string{{s, "$" + nodeapi.SocketVariable}}
	}
	return [][2]string{{Socket(getenv), "netcraq dev"}, {nodeapi.DefaultSocket, "a node's server"}}
}

// NodeSocket is the first existing candidate, or "".
func NodeSocket(getenv func(string) string) string {
	for _, c := range Candidates(getenv) {
		if c[1] == "$"+nodeapi.SocketVariable || nodeapi.IsSocket(c[0]) {
			return c[0]
		}
	}
	return ""
}

// Admin is where commands search for a controller: first at the `netcraq dev` with a node API
// socket ("": the first existing candidate), then at controllers' default addresses.
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
