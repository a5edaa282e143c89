package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Access has the permissions of a Unix socket's file. They decide which users can connect.
type Access struct {
	Mode fs.FileMode
	GID  int // group of the file; -1 means the group of this process
}

// CheckAddress returns an error if Listen does not support an address.
func CheckAddress(address string) error {
	if where, ok := strings.CutPrefix(address, "tcp://"); ok {
		_, _, err := net.SplitHostPort(where)
		return err
	}
	if path, ok := strings.CutPrefix(address, "unix://"); !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("%s: want unix:///PATH or tcp://HOST:PORT", address)
	}
	return nil
}

// Listen listens at an address, which is unix:///PATH or tcp://HOST:PORT. An empty HOST means the
// loopback address. Listen replaces the socket file of a dead server, but not of a running server.
func Listen(address string, a Access) (net.Listener, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	if where, ok := strings.CutPrefix(address, "tcp://"); ok {
		host, port, _ := net.SplitHostPort(where)
		if host == "" {
			host = "127.0.0.1"
		}
		return net.Listen("tcp", net.JoinHostPort(host, port))
	}
	path := strings.TrimPrefix(address, "unix://")
	if err := mayReplace(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return listenUnix(path, a)
}

// socketFile is a listener at a Unix socket. Close removes the socket's file, unless another
// listener has replaced the file.
type socketFile struct {
	*net.UnixListener
	path string
	made os.FileInfo

	mu   sync.Mutex
	keep bool
}

// listenUnix creates the socket under another name in the same folder, and then renames it. So the
// file never has other permissions. When it replaces another file, there is always a file at the
// path.
func listenUnix(path string, a Access) (_ *socketFile, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	beside := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: beside, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := os.Chmod(beside, a.Mode); err != nil {
		return nil, err
	}
	if a.GID >= 0 {
		if err := os.Chown(beside, -1, a.GID); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(beside, path); err != nil {
		return nil, err
	}
	made, err := os.Stat(path)
	return &socketFile{UnixListener: l, path: path, made: made}, err
}

// mayReplace returns nil if nothing exists at the path, or only the socket of a dead server.
func mayReplace(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there, and no socket", path)
	}
	nc, err := net.Dial("unix", path)
	switch {
	case err == nil:
		nc.Close()
		return fmt.Errorf("%s: a server that lives listens there", path)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// Addr returns the path of the socket. It cannot use the kernel's address, because that has the
// name under which the socket was created.
func (l *socketFile) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close closes the listener and removes its file.
func (l *socketFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep {
		l.keep = true
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			os.Remove(l.path)
		}
	}
	return l.UnixListener.Close()
}

// leave makes Close keep the file, because another process now listens there.
func (l *socketFile) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep = true
}
