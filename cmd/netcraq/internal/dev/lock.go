package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cmd/internal/place"
)

// folder is a server's folder. The server owns it exclusively until it removes the folder.
type folder struct {
	socket, path string
	lock         *os.File
}

// openFolder acquires the folder of a socket. It removes files that a killed server has left there.
func openFolder(socket string) (*folder, error) {
	if err := place.Prepare(socket); err != nil {
		return nil, err
	}
	path := place.Folder(socket)
	for {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		name := filepath.Join(path, "lock")
		lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			b, _ := os.ReadFile(name)
			lock.Close()
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("locking %s: %w", name, err)
			}
			pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			return nil, fmt.Errorf("cannot listen on %s: %s has it. Stop it, or pass --socket PATH", socket, process(pid))
		}
		mine, err := lock.Stat()
		there, err2 := os.Stat(name)
		if err == nil && err2 == nil && os.SameFile(mine, there) {
			f := &folder{socket, path, lock}
			return f, f.begin()
		}
		lock.Close() // the previous server has just removed the folder
	}
}

// begin removes another server's files, and records the new owner.
func (f *folder) begin() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			if err := os.RemoveAll(filepath.Join(f.path, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := f.lock.Truncate(0); err != nil {
		return err
	}
	_, err = fmt.Fprintln(f.lock, os.Getpid())
	return err
}

func (f *folder) remove() {
	_ = os.RemoveAll(f.path)
	f.lock.Close()
	place.Release(f.socket)
}
