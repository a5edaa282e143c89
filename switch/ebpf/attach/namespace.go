package attach

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a thread that stays in one network namespace. Interfaces are found, programs
// attached and packet-outs run on this thread, whichever thread makes the call.
type Namespace struct {
	work chan func()

	mu     sync.RWMutex // held for writing when the thread ends
	closed bool
}

var ErrClosed = errors.New("the switch is closed")

// EnterNamespace makes a thread in the calling thread's network namespace.
func EnterNamespace() (*Namespace, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("this thread's network namespace: %w", err)
	}
	defer unix.Close(fd)
	return newNamespace(fd)
}

// newNamespace makes a thread in the network namespace that a file refers to.
func newNamespace(fd int) (*Namespace, error) {
	n := &Namespace{work: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		entered <- err
		if err != nil {
			return
		}
		for f := range n.work {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("entering a network namespace: %w", err)
	}
	return n, nil
}

// Do runs f on the namespace's thread.
func (n *Namespace) Do(f func() error) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return ErrClosed
	}
	done := make(chan error, 1)
	n.work <- func() { done <- f() }
	return <-done
}

func (n *Namespace) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.closed = true
		close(n.work)
	}
}
