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

// Descriptors travel with messages (SCM_RIGHTS): a message's descriptors arrive with its first
// byte. So a reader that has read a message also has its descriptors, in the order of messages. A
// message with descriptors begins a write of its own; one read never goes beyond the write that
// descriptors came with.

// passing has descriptors that wait until their message is written.
type passing struct {
	at    uint64 // position of the message's first byte among all bytes ever pushed
	files []*os.File
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// writePart writes part of b, the next unsent bytes, and returns the number of bytes written.
// Descriptors are sent with the first byte of their message. c.mu is held, except during the write.
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

// flying counts descriptors that were sent but not read yet. The kernel counts them for the sending
// user, and bounds each user's number. A client that does not read must not use up the number that
// other clients need.
type flying struct {
	mu  sync.Mutex
	all int
	of  map[string]int // number of descriptors, by subject
}

const (
	mostFlying     = 1024
	mostFlyingEach = 128 // maximum number of one subject's descriptors
)

// take counts descriptors, unless there would be too many.
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

// wait is like take, but waits until there is room, because many clients may subscribe at the same
// moment.
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

// pass sends an answer with n descriptors, and waits until the client has read them, or has gone. A
// client that does not read is cut off after Limits.DescriptorTime, even if it has canceled the
// request.
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

// wasRead reports whether the client has read all that was sent, or has gone.
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

// hungUp reports whether the client has closed its end of a Unix socket. The connection's reader
// learns about that only after it has read all that the client sent before. A client that only shut
// down its sending direction has not hung up.
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
