package server

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// File descriptors are sent together with messages (SCM_RIGHTS). The descriptors of a message
// arrive with the first byte of the message. So a reader that has read a message also has its
// descriptors, in the order of the messages. A message with descriptors begins a new write. This is
// necessary because one read never returns bytes beyond the write to which descriptors belong.

// passing has descriptors that wait until their message is written.
type passing struct {
	at    uint64 // position of the message's first byte among all bytes that were sent
	files []*os.File
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// writePart writes a part of b, which has the next unsent bytes, and returns the number of bytes
// written. It sends descriptors together with the first byte of their message. The caller holds
// c.mu, which writePart releases during the write.
func (c *conn) writePart(b []byte) (int, error) {
	var files []*os.File
	if len(c.passing) > 0 {
		switch next := c.passing[0]; {
		case next.at == c.gone:
			files, c.passing = next.files, c.passing[1:]
		case next.at < c.gone+uint64(len(b)):
			b = b[:next.at-c.gone]
		}
	}
	if len(files) > 0 && len(c.passing) > 0 && c.passing[0].at < c.gone+uint64(len(b)) {
		b = b[:c.passing[0].at-c.gone]
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	if len(files) == 0 {
		return c.nc.Write(b)
	}
	defer closeAll(files)
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := c.nc.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	return n, err
}

// flying counts descriptors that were sent but not read yet. The kernel counts such descriptors for
// the user of the sender, and limits their number. A client that does not read must not use up the
// number, because other clients need it.
type flying struct {
	mu  sync.Mutex
	all int
	of  map[string]int // number of unread descriptors, by subject
}

const (
	mostFlying     = 1024
	mostFlyingEach = 128 // maximum number of unread descriptors of one subject
)

// take counts n descriptors. It returns false, and counts nothing, if there would be too many.
func (f *flying) take(subject string, n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all+n > mostFlying || f.of[subject]+n > mostFlyingEach {
		return false
	}
	if f.of == nil {
		f.of = map[string]int{}
	}
	f.all += n
	f.of[subject] += n
	return true
}

// wait is like take, but waits until there is room. This is needed because many clients may
// subscribe at the same moment.
func (f *flying) wait(ctx context.Context, subject string, n int, most time.Duration) error {
	late := time.NewTimer(most)
	defer late.Stop()
	for !f.take(subject, n) {
		select {
		case <-time.After(readEvery):
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "read what was sent, and try again",
				"too many descriptors are on their way to clients that have not read them")
		}
	}
	return nil
}

func (f *flying) give(subject string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all -= n
	if f.of[subject] -= n; f.of[subject] == 0 {
		delete(f.of, subject)
	}
}

// pass sends an answer with n descriptors. It waits until the client has read them or has
// disconnected. If the client does not read them within Limits.DescriptorTime, the connection is
// closed, even if the client has canceled the request.
func (k *call) pass(ctx context.Context, answer any, n int, open func() ([]*os.File, error)) error {
	c, s := k.c, k.c.s
	subject := s.config.Authority.Subject(c.peer)
	if err := s.flying.wait(ctx, subject, n, s.limits.DescriptorTime/2); err != nil {
		return err
	}
	defer s.flying.give(subject, n)
	files, err := open()
	if err != nil {
		return err
	}
	if !k.moreWith(ctx, answer, files) {
		return ctx.Err()
	}
	if c.wasRead() {
		return nil
	}
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	late := time.NewTimer(s.limits.DescriptorTime)
	defer late.Stop()
	for !c.wasRead() {
		select {
		case <-tick.C:
		case <-late.C:
			c.cutOff("descriptors unread")
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return nil
}

const readEvery = 2 * time.Millisecond

// wasRead reports whether the client has read everything that was sent, or has disconnected.
func (c *conn) wasRead() bool {
	c.mu.Lock()
	unsent := c.unsent
	c.mu.Unlock()
	if unsent > 0 {
		return false
	}
	raw, err := c.nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	queued := 0
	err = raw.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err != nil || queued == 0
}

// hungUp reports whether the client has closed its end of a Unix socket. The goroutine that reads
// the connection learns this only after it has read everything that the client sent before. A
// client that only shut down its sending direction has not hung up.
func (c *conn) hungUp() bool {
	if c.raw == nil {
		return false
	}
	polled := []unix.PollFd{{Events: unix.POLLHUP}}
	err := c.raw.Control(func(fd uintptr) {
		polled[0].Fd = int32(fd)
		_, _ = unix.Poll(polled, 0)
	})
	return err != nil || polled[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}
