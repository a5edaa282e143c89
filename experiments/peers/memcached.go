package peers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Memcached is a memcached server over UDP. Of all alternatives, its transport is the most like
// NetCRAQ's. By memcached's documentation (protocol.txt, "UDP protocol"), 8 bytes come before the
// text protocol: request id, sequence number, number of datagrams, and a reserved field, with 16
// bits each. Go clients support only TCP, so this package has its own client. An unanswered query
// counts as lost and is not sent again.
type Memcached struct{ addr string }

// NewMemcached returns the memcached server at a UDP address (HOST:PORT).
func NewMemcached(addr string) *Memcached { return &Memcached{addr: addr} }

// Open implements [Peer] with a socket for each worker.
func (m *Memcached) Open(_ context.Context, n int) (Store, error) {
	c, err := net.Dial("udp", m.addr)
	if err != nil {
		return nil, fmt.Errorf("a socket to memcached at %s: %w", m.addr, err)
	}
	return &memcachedStore{conn: c, request: uint16(n), buffer: make([]byte, 65536)}, nil
}

// Close implements [Peer].
func (*Memcached) Close() error { return nil }

type memcachedStore struct {
	conn    net.Conn
	request uint16
	out     []byte
	buffer  []byte
}

const udpHeader = 8

// ask sends a command in one datagram and returns the answer, which must also be one datagram.
func (s *memcachedStore) ask(ctx context.Context, parts ...[]byte) ([]byte, error) {
	s.request++
	s.out = binary.BigEndian.AppendUint16(s.out[:0], s.request)
	s.out = append(s.out, 0, 0, 0, 1, 0, 0)
	for _, p := range parts {
		s.out = append(s.out, p...)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Second)
	}
	if err := s.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := s.conn.Write(s.out); err != nil {
		return nil, err
	}
	for {
		n, err := s.conn.Read(s.buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, context.DeadlineExceeded
		}
		if err != nil {
			return nil, err
		}
		switch {
		case n < udpHeader:
			return nil, fmt.Errorf("memcached answered with %d bytes", n)
		case binary.BigEndian.Uint16(s.buffer) != s.request:
			continue // this is a late answer to an earlier query
		case binary.BigEndian.Uint16(s.buffer[4:]) != 1:
			return nil, errors.New("memcached's answer comes in several datagrams: the value is too long for this client")
		}
		return s.buffer[udpHeader:n], nil
	}
}

func (s *memcachedStore) Get(ctx context.Context, key string) ([]byte, error) {
	answer, err := s.ask(ctx, []byte("get "), []byte(key), []byte("\r\n"))
	if err != nil {
		return nil, err
	}
	// The answer has the form VALUE <key> <flags> <bytes>\r\n<data>\r\nEND\r\n.
	line, rest, ok := bytes.Cut(answer, []byte("\r\n"))
	words := bytes.Fields(line)
	if !ok || len(words) != 4 || string(words[0]) != "VALUE" || string(words[1]) != key {
		return nil, fmt.Errorf("memcached answered a get with %q", line)
	}
	n, err := strconv.Atoi(string(words[3]))
	if err != nil || n < 0 || n > len(rest) {
		return nil, fmt.Errorf("memcached answered a get with %q and %d bytes", line, len(rest))
	}
	return rest[:n], nil
}

func (s *memcachedStore) Put(ctx context.Context, key string, value []byte) error {
	answer, err := s.ask(ctx, fmt.Appendf(nil, "set %s 0 0 %d\r\n", key, len(value)), value, []byte("\r\n"))
	if err != nil {
		return err
	}
	if string(answer) != "STORED\r\n" {
		return fmt.Errorf("memcached answered a set with %q", answer)
	}
	return nil
}

func (s *memcachedStore) Close() error { return s.conn.Close() }
