// Package place has the default addresses at which `netcraq dev` listens and the other commands
// look for it.
//
// A server owns one Unix socket, for the node API, and a folder next to it, SOCKET.d, with
// everything else that it needs: the controller's admin socket, its tokens, a lock.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
)

// Socket is the default place of the node API's socket: netcraq.sock in $XDG_RUNTIME_DIR or, if
// that is not set, in a folder of this user in /tmp ($TMPDIR).
func Socket(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "netcraq.sock")
	}
	return filepath.Join(own(), "netcraq.sock")
}

// own is the folder of this user in /tmp.
func own() string { return filepath.Join(os.TempDir(), fmt.Sprintf("netcraq-%d", os.Geteuid())) }

// Folder is the folder of the server that has a socket.
func Folder(socket string) string { return socket + ".d" }

// AdminSocket is the admin API's socket of the server that has a node API socket.
func AdminSocket(socket string) string { return filepath.Join(Folder(socket), "admin.sock") }

// Prepare makes the folder of a socket. It refuses the folder in /tmp if another user could have
// put something there.
func Prepare(socket string) error {
	dir := filepath.Dir(socket)
	if dir != own() {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return check(dir)
}

// Release removes the folder of a socket if Prepare has made it and nothing is left in it.
func Release(socket string) {
	if filepath.Dir(socket) == own() {
		_ = os.Remove(own())
	}
}

// check says whether a folder belongs to this user, and to nobody else.
func check(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || st == nil || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder that only this user can enter. Remove it, set XDG_RUNTIME_DIR, or pass --socket", dir)
	}
	return nil
}

// usable says whether a socket is there, in a folder that can be trusted.
func usable(socket string) bool {
	info, err := os.Lstat(socket)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	return filepath.Dir(socket) != own() || check(own()) == nil
}

// Candidates are the sockets at which a command looks for a node API, the first first, each with a
// word on where it comes from.
func Candidates(getenv func(string) string) (out [][2]string) {
	if s := getenv(nodeapi.SocketVariable); s != "" {
		return [][2]string{{s, "$" + nodeapi.SocketVariable}}
	}
	return [][2]string{{Socket(getenv), "netcraq dev"}, {nodeapi.DefaultSocket, "a node's server"}}
}

// NodeSocket is the first of the candidates that is there; "": none is.
func NodeSocket(getenv func(string) string) string {
	for _, c := range Candidates(getenv) {
		if c[1] == "$"+nodeapi.SocketVariable || usable(c[0]) {
			return c[0]
		}
	}
	return ""
}

// Admin is where commands look for a controller: at the `netcraq dev` that has a node API's socket
// ("": the first of the candidates), then where controllers listen.
func Admin(socket string, getenv func(string) string) string {
	if socket == "" {
		socket = Candidates(getenv)[0][0]
	}
	socket = strings.TrimPrefix(socket, "unix://")
	if at := AdminSocket(socket); filepath.IsAbs(at) && usable(at) {
		return "unix://" + at + "," + admin.DefaultSocket()
	}
	return admin.DefaultSocket()
}
