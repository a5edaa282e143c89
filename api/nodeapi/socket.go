// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FindSocket returns the address of the node's server for a program that does not name one. It is
// $NETCRAQ_NODE_SOCKET if that is set. Otherwise it is the socket of `netcraq dev` if this user
// runs one, and DefaultSocket if not.
func FindSocket(getenv func(string) string) string {
	if s := getenv(SocketVariable); s != "" {
		return s
	}
	if s := DevSocket(getenv); IsSocket(s) {
		return s
	}
	return DefaultSocket
}

// DevSocket returns the socket of `netcraq dev`. It is netcraq.sock in $XDG_RUNTIME_DIR or, if that
// is not set, in DevFolder.
func DevSocket(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "netcraq.sock")
	}
	return filepath.Join(DevFolder(), "netcraq.sock")
}

// DevFolder returns this user's folder in /tmp ($TMPDIR).
func DevFolder() string { return filepath.Join(os.TempDir(), fmt.Sprintf("netcraq-%d", os.Geteuid())) }

// CheckDevFolder returns an error unless DevFolder belongs to this user, and only this user can
// enter it.
func CheckDevFolder() error {
	dir := DevFolder()
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ownedByUser(info) || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder that only this user can enter. Remove it, set XDG_RUNTIME_DIR, or pass --socket", dir)
	}
	return nil
}

// IsSocket reports whether a path is a socket. In DevFolder it must be a socket that no other user
// can have created.
func IsSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	return filepath.Dir(path) != DevFolder() || CheckDevFolder() == nil
}
