// Package segment makes the files in memory that a broker of streams shares with consumers, and the
// broker's own files. api/stream defines their content.
//
// A consumer gets a descriptor of a memfd that is open for reading. It cannot map the memfd for
// writing, make a mapping writable by mprotect, or open the memfd for writing through /proc. The
// seal F_SEAL_FUTURE_WRITE prevents this, even for root: only the broker's mapping, which is older
// than the seal, is writable. The memfd cannot be truncated, so no reader gets SIGBUS.
package segment

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Memory is a file that is mapped completely.
type Memory struct {
	// Bytes is the content of the file. It is invalid after Close.
	Bytes []byte

	file  *os.File // descriptor for consumers; nil if consumers cannot get the file
	close sync.Once
}

// New makes a memfd of the given size, and a descriptor of it for readers. Only this process can
// write to the memfd.
func New(name string, size int) (*Memory, error) {
	f, err := create(name, size)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	m := &Memory{Bytes: b}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("sealing a memfd against writers (Linux 5.1 is needed): %w", err)
	}
	if m.file, err = reopen(f, unix.O_RDONLY); err != nil {
		m.Close()
		return nil, fmt.Errorf("opening a memfd for reading: %w", err)
	}
	return m, nil
}

// NewShared makes a memfd of the given size. This process and the receivers of its descriptor can
// write to it.
func NewShared(name string, size int) (*Memory, error) {
	f, err := create(name, size)
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	m := &Memory{Bytes: b, file: f}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("sealing a memfd: %w", err)
	}
	return m, nil
}

// create makes a memfd, and opens it again for reading and writing. The second open is needed
// because the kernel does not count the descriptor from memfd_create among a file's writers, and
// Remains relies on this count.
func create(name string, size int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // kernels before Linux 6.3 return EINVAL
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("making a memfd: %w", err)
	}
	made := os.NewFile(uintptr(fd), name)
	defer made.Close()
	f, err := reopen(made, unix.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("opening a memfd: %w", err)
	}
	err = unix.Fchmod(fd, 0o400)
	if err == nil {
		err = unix.Ftruncate(fd, int64(size))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("a memfd of %d bytes: %w", size, err)
	}
	return f, nil
}

// Make makes a file of the given size, filled with zeros, and maps it for this process only.
func Make(path string, size int) (*Memory, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Allocate all memory now. If memory ran out later, a write into a hole of the file would crash
	// this process.
	if err := allocate(f, int64(size)); err != nil {
		return nil, fmt.Errorf("%s, of %d bytes: %w", path, size, err)
	}
	return mapFile(f, size)
}

// allocateStep is the number of bytes that one call of fallocate allocates. The kernel clears these
// bytes during the call, at some GB per second. A longer call would block one of Go's processors
// for up to 10 ms, and a signal would make the kernel undo the whole call.
const allocateStep = 256 << 10

// allocate allocates memory for the first size bytes of a file.
func allocate(f *os.File, size int64) error {
	step := func(at, n int64) error {
		var err error
		aside(func() { err = unix.Fallocate(int(f.Fd()), 0, at, n) })
		return err
	}
	for at := int64(0); at < size; {
		n := min(allocateStep, size-at)
		switch err := step(at, n); err {
		case nil:
			at += n
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}

// Open maps a file that Make has made. It refuses a file of another size and leaves it unchanged,
// because a part of it is lost.
func Open(path string, size int) (*Memory, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != int64(size) {
		return nil, fmt.Errorf("%s has %d bytes, not %d", path, info.Size(), size)
	}
	return mapFile(f, size)
}

func mapFile(f *os.File, size int) (*Memory, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	runtime.KeepAlive(f)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return &Memory{Bytes: b}, nil
}

// Pass returns a descriptor for a consumer. The caller closes it.
func (m *Memory) Pass() (*os.File, error) {
	defer runtime.KeepAlive(m)
	return duplicate(m.file)
}

// Close unmaps the memory and closes the file. Mappings of consumers stay valid.
func (m *Memory) Close() { m.Retire().Close() }

// Retire is like Close, for memory that other programs may have received. The result tells the
// caller when the kernel has freed the memory. A second call returns nil, and so does a call for a
// file that is never passed to other programs.
func (m *Memory) Retire() (r *Remains) {
	m.close.Do(func() {
		_ = unix.Munmap(m.Bytes)
		m.Bytes = nil
		if m.file != nil {
			r = &Remains{file: m.file}
		}
	})
	return r
}
