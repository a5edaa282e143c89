package client

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// prompt receives answers that have already arrived when the system call that sends the requests
// returns. For example, the switch in this machine's kernel answers a read within that system call,
// and a chain of such switches answers a write. Waiting for the runtime's poller to wake the
// receiving goroutine would take several times as long as the answer.
//
// Only the goroutine that sends may use it, except for the method hopeful.
type prompt struct {
	raw      syscall.RawConn
	take     func(fd uintptr) // receives one packet into buffer
	buffer   []byte
	n        int
	from     unix.Sockaddr
	err      error
	received []received
	in       [promptMost][]byte

	empty int          // consecutive sends without an answer
	skip  atomic.Int32 // remaining sends for which answers does not try to receive
}

const (
	promptMost = 16 // maximum number of packets to receive after one send
	// sends without an answer after which answers stops trying for promptEvery sends
	promptPatience = 32
	promptEvery    = 64 // number of sends for which answers does not try
)

// hopeful reports whether it is worth trying to receive answers now.
func (p *prompt) hopeful() bool { return p.skip.Load() == 0 }

func (p *prompt) open(conn *net.UDPConn, size int) (err error) {
	p.raw, err = conn.SyscallConn()
	for i := range p.in {
		p.in[i] = make([]byte, size)
	}
	// This code cannot use RawConn.Read, because it would wait for the goroutine that is receiving.
	p.take = func(fd uintptr) {
		p.n, p.from, p.err = unix.Recvfrom(int(fd), p.buffer, unix.MSG_DONTWAIT)
	}
	return err
}

// answers returns the packets that have arrived after `sent` packets were sent. They are valid
// until the next call.
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
