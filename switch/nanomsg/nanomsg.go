// Package nanomsg publishes messages to BMv2's listeners, as nanomsg's PUB sockets do. It
// implements the SP protocol over TCP (RFC draft sp-tcp-mapping-01), and nanomsg's own protocol
// over Unix sockets, which puts a byte before each message. Subscribers filter the messages
// themselves, so each subscriber gets all messages.
//
// A slow subscriber loses messages, as with nanomsg. Nothing waits for a subscriber.
package nanomsg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a publisher.
const (
	maxSubscribers = 32
	// messages that wait for one subscriber; further messages are dropped
	maxWaiting    = 1024
	handshakeTime = 5 * time.Second  // time limit for the subscriber's handshake
	writeTime     = 20 * time.Second // time limit for sending a message
	pauseOnError  = 100 * time.Millisecond
)

// The first message of a PUB socket, and the first message that a PUB socket expects from a SUB
// socket. Each contains a protocol number.
var (
	greeting = []byte{0, 'S', 'P', 0, 0, 0x20, 0, 0}
	answer   = []byte{0, 'S', 'P', 0, 0, 0x21, 0, 0}
)

// Publisher is a PUB socket that accepts connections.
type Publisher struct {
	listener net.Listener
	ipc      bool
	log      *slog.Logger

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	closed      bool
	ready       atomic.Int32 // number of subscribers that have finished the handshake
	wg          sync.WaitGroup
}

type subscriber struct {
	conn    net.Conn
	ready   bool // the handshake is finished; guarded by Publisher.mu
	waiting chan []byte
}

// Listen creates a Publisher at a nanomsg address: ipc://PATH or tcp://HOST:PORT. It replaces a
// Unix socket without a listener, but not the socket of another user, and no other kind of file.
func Listen(address string, log *slog.Logger) (*Publisher, error) {
	p := &Publisher{log: log, subscribers: map[*subscriber]struct{}{}}
	kind, rest, _ := strings.Cut(address, "://")
	var err error
	switch kind {
	case "ipc":
		p.ipc = true
		if err := removeStale(rest); err != nil {
			return nil, err
		}
		p.listener, err = net.Listen("unix", rest)
	case "tcp":
		// In nanomsg, * stands for all addresses.
		p.listener, err = net.Listen("tcp", strings.Replace(rest, "*", "", 1))
	default:
		return nil, fmt.Errorf("%q is no address of nanomsg: give ipc://PATH or tcp://HOST:PORT",
			address)
	}
	if err != nil {
		return nil, err
	}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// removeStale removes the Unix socket of a process that has ended.
func removeStale(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil // There is no file, or Listen will report the error.
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a socket of this user; remove it, or give another address",
			path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%s: %w", path, syscall.EADDRINUSE)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

func (p *Publisher) accept() {
	defer p.wg.Done()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Accept fails temporarily, for example, if no file descriptor is left.
			time.Sleep(pauseOnError)
			continue
		}
		s := &subscriber{conn: c, waiting: make(chan []byte, maxWaiting)}
		p.mu.Lock()
		full := p.closed || len(p.subscribers) >= maxSubscribers
		if !full {
			p.subscribers[s] = struct{}{}
			p.wg.Add(1)
		}
		p.mu.Unlock()
		if full {
			p.log.Warn("nanomsg: a subscriber is refused", "subscribers", maxSubscribers)
			_ = c.Close()
			continue
		}
		go p.serve(s)
	}
}

func (p *Publisher) serve(s *subscriber) {
	defer p.wg.Done()
	defer p.drop(s)
	_ = s.conn.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := s.conn.Write(greeting); err != nil {
		return
	}
	heard := make([]byte, len(answer))
	if _, err := io.ReadFull(s.conn, heard); err != nil || !bytes.Equal(heard, answer) {
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	p.mu.Lock()
	s.ready = true
	p.ready.Add(1)
	p.mu.Unlock()
	gone := make(chan struct{})
	go func() { // A subscriber sends nothing, so Read returns only when the connection ends.
		_, _ = s.conn.Read(make([]byte, 1))
		_ = s.conn.Close()
		close(gone)
	}()
	for {
		select {
		case <-gone:
			return
		case m := <-s.waiting:
			_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
			if _, err := s.conn.Write(m); err != nil {
				_ = s.conn.Close()
				<-gone
				return
			}
		}
	}
}

func (p *Publisher) drop(s *subscriber) {
	_ = s.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subscribers, s)
	if s.ready {
		p.ready.Add(-1)
	}
}

// Subscribed reports whether there is a subscriber.
func (p *Publisher) Subscribed() bool { return p.ready.Load() > 0 }

// Publish sends a message to all subscribers. It does not block.
func (p *Publisher) Publish(message []byte) {
	var framed []byte
	if p.ipc {
		framed = append(framed, 1)
	}
	framed = binary.BigEndian.AppendUint64(framed, uint64(len(message)))
	framed = append(framed, message...)
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		if !s.ready {
			continue
		}
		select {
		case s.waiting <- framed:
		default: // drop the message, because the subscriber is too slow
		}
	}
}

// Addr returns the listener's address.
func (p *Publisher) Addr() net.Addr { return p.listener.Addr() }

// Close closes the Publisher and drops unsent messages.
func (p *Publisher) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for s := range p.subscribers {
		_ = s.conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
