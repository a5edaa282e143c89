// Package segment makes the files in memory that a broker of streams shares with consumers, and
// the files that it keeps for itself: what is in them, api/stream says.
//
// A consumer is given a descriptor of a memfd that is open for reading. It cannot map it for
// writing, nor get such a mapping by mprotect, nor open it anew by /proc: after the broker's own
// mapping there can be no other one that writes (F_SEAL_FUTURE_WRITE), whoever asks, root included.
// It cannot be truncated, so nobody who reads is sent SIGBUS.
package segment

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Memory is a mapping of a whole file.
type Memory struct {
	// Bytes are the file's. They are gone after Close.
	Bytes []byte

	file  *os.File // what consumers are given; nil: it is not for consumers
	close sync.Once
}

// New makes a memfd of a size that this process alone can write to, with a descriptor for readers.
func New(name string, size int) (*Memory, error) {
	fd, err := create(name, size)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	m := &Memory{Bytes: b}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("sealing a memfd against writers (Linux 5.1 is needed): %w", err)
	}
	// A descriptor of its own, that is open for reading: what memfd_create returns is for both.
	read, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("opening a memfd for reading: %w", err)
	}
	m.file = os.NewFile(uintptr(read), name)
	return m, nil
}

// NewShared makes a memfd of a size that this process and whoever is given its descriptor write to.
func NewShared(name string, size int) (*Memory, error) {
	fd, err := create(name, size)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	m := &Memory{Bytes: b, file: f}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("sealing a memfd: %w", err)
	}
	return m, nil
}

func create(name string, size int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("making a memfd: %w", err)
	}
	err = unix.Fchmod(fd, 0o400)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("a memfd of %d bytes: %w", size, err)
	}
	return fd, nil
}

// File maps a file of a size for this process alone, and makes it where there is none. made says
// that it was, or that it had another size, and is all zero now.
func File(path string, size int) (m *Memory, made bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if made = info.Size() != int64(size); made {
		err = f.Truncate(0)
		if err == nil {
			err = f.Truncate(int64(size))
		}
		// A file with holes would end this process where there is no memory for them.
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, int64(size))
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s, of %d bytes: %w", path, size, err)
		}
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	runtime.KeepAlive(f)
	if err != nil {
		return nil, false, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &Memory{Bytes: b}, made, nil
}

// Pass is a descriptor for a consumer. The caller closes it.
func (m *Memory) Pass() (*os.File, error) {
	defer runtime.KeepAlive(m)
	return duplicate(m.file)
}

// Close unmaps it. What consumers have mapped they keep.
func (m *Memory) Close() {
	m.close.Do(func() {
		_ = unix.Munmap(m.Bytes)
		m.Bytes = nil
		if m.file != nil {
			m.file.Close()
		}
	})
}
