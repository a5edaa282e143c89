package client

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// prompt receives answers that are there as soon as the requests have been sent. The switch of this
// machine (its program in the kernel, behind a veth) answers a read, and a chain of such switches a
// write, within the system call that sends it. Waiting for the runtime's poller to wake the
// receiving goroutine would take several times as long as the answer.
//
// Only who sends uses it: one goroutine at a time (except for hopeful).
type prompt struct {
	raw      syscall.RawConn
	take     func(fd uintptr) // receives into buffer, once
	buffer   []byte
	n        int
	from     unix.Sockaddr
	err      error
	received []received
	in       [promptMost][]byte

	empty int          // times in a row that nothing was there
	skip  atomic.Int32 // sends, before it is looked again
}

const (
	promptMost     = 16 // packets that are taken after one sending
	promptPatience = 32 // times in a row that nothing was there: the switches are taken to be elsewhere
	promptEvery    = 64 // sends, after which it looks again nevertheless
)

// hopeful says whether answers may be there at once.
func (p *prompt) hopeful() bool { return p.skip.Load() == 0 }

func (p *prompt) open(conn *net.UDPConn, size int) (err error) {
	p.raw, err = conn.SyscallConn()
	for i := range p.in {
		p.in[i] = make([]byte, size)
	}
	// Not by RawConn.Read, which waits for the goroutine that is receiving.
	p.take = func(fd uintptr) {
		p.n, p.from, p.err = unix.Recvfrom(int(fd), p.buffer, unix.MSG_DONTWAIT)
	}
	return err
}

// answers gives the packets that have come, after sent packets were sent. They are good until the
// next call.
func (p *prompt) answers(sent int) []received {
	p.received = p.received[:0]
	if !p.hopeful() {
		p.skip.Add(-1)
		return nil
	}
	for len(p.received) < min(sent, promptMost) {
		p.buffer = p.in[len(p.received)]
		if err := p.raw.Control(p.take); err != nil || p.err != nil {
			break
		}
		if from, ok := p.from.(*unix.SockaddrInet4); ok {
			p.received = append(p.received, received{netip.AddrPortFrom(netip.AddrFrom4(from.Addr),
				uint16(from.Port)), p.buffer[:p.n]})
		}
	}
	if len(p.received) > 0 {
		p.empty = 0
	} else if p.empty++; p.empty >= promptPatience {
		p.skip.Store(promptEvery)
	}
	return p.received
}
