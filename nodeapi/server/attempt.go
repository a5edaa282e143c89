package server

import (
	"errors"
	"syscall"
)

// attempt is a write that does not wait. It has what it needs, so that none allocates.
type attempt struct {
	do  func(fd uintptr) bool // write
	b   []byte
	n   int
	err error
}

func (t *attempt) write(fd uintptr) bool {
	for {
		t.n, t.err = syscall.Write(int(fd), t.b)
		if !errors.Is(t.err, syscall.EINTR) {
			return true
		}
	}
}

// tryWrite writes as much as the socket takes without waiting. c.writing is the caller's.
func (c *conn) tryWrite(b []byte) (int, error) {
	t := &c.try
	t.b = b
	err := c.raw.Write(t.do)
	t.b = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(t.err, syscall.EAGAIN):
		return 0, nil
	}
	return max(t.n, 0), t.err
}
