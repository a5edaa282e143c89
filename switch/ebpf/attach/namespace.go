package attach

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a thread that stays in one network namespace. The switch finds interfaces, attaches
// programs and runs packet-outs on this thread, from whichever thread the call comes.
type Namespace struct {
	work chan func()

	mu     sync.RWMutex // locked for writing when the thread ends
	closed bool
}

var ErrClosed = errors.New("the switch is closed")

// EnterNamespace starts a thread in the network namespace of the calling thread.
func EnterNamespace() (*Namespace, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("this thread's network namespace: %w", err)
	}
	defer unix.Close(fd)
	return newNamespace(fd)
}

// newNamespace starts a thread in the network namespace to which a file descriptor refers.
func newNamespace(fd int) (*Namespace, error) {
	n := &Namespace{work: make(chan func())}
	entered := make(chan error)
	go func() {
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
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
