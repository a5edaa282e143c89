package segment

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Sealable is a memfd that one program writes. After it is sealed, no program can write to it. This
// process does not map it.
type Sealable struct {
	write *os.File // nil after the memfd is sealed
	read  *os.File
}

// NewSealable makes a Sealable of the given size. It allocates the memory at once. Otherwise a
// program that maps the memfd could get SIGBUS if memory ran out.
func NewSealable(name string, size int) (*Sealable, error) {
	f, err := create(name, size)
	if err != nil {
		return nil, err
	}
	s := &Sealable{write: f}
	err = allocate(f, int64(size))
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err == nil {
		s.read, err = reopen(f, unix.O_RDONLY)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("a memfd of %d bytes: %w", size, err)
	}
	return s, nil
}

// Seal ends writing through all descriptors. It fails with EBUSY while a program has the memfd
// mapped for writing.
func (s *Sealable) Seal() error {
	_, err := unix.FcntlInt(s.write.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	if err == nil {
		s.write.Close()
		s.write = nil
	}
	return err
}

// SealFuture is like Seal, but existing writable mappings stay writable. No new writable mapping
// can be made, with any descriptor.
func (s *Sealable) SealFuture() error {
	_, err := unix.FcntlInt(s.write.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if err == nil {
		s.write.Close()
		s.write = nil
	}
	return err
}

// Writer returns a descriptor for the program that writes the memfd. The caller closes it.
func (s *Sealable) Writer() (*os.File, error) {
	if s.write == nil {
		return nil, os.ErrClosed
	}
	return duplicate(s.write)
}

// Pass returns a descriptor for programs that map the memfd for reading. The caller closes it.
func (s *Sealable) Pass() (*os.File, error) { return duplicate(s.read) }

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	runtime.KeepAlive(f)
	if err != nil {
		return nil, fmt.Errorf("a descriptor for another program: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Close closes the memfd. Programs that have it open or mapped keep it.
func (s *Sealable) Close() { s.Retire().Close() }

// Retire is like Close, for a memfd that other programs may have received. The result is that of
// [Memory.Retire].
func (s *Sealable) Retire() *Remains {
	if s.write != nil {
		s.write.Close()
	}
	return &Remains{file: s.read}
}
