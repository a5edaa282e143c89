package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/shares"
)

// Limits are the limits of the server itself, in addition to those of the API. If a field is 0, the
// default at the end of its comment applies.
type Limits struct {
	// Connections is the maximum number of connections of the server. 16,384.
	Connections int
	// MessageTime is the maximum time from the first byte to the last byte of a message. 30 s.
	MessageTime time.Duration
	// StallTime is the maximum time for which a client may leave sent data unread. 60 s.
	StallTime time.Duration
	// DescriptorTime is the maximum time for which a client may leave descriptors unread. 10 s.
	DescriptorTime time.Duration
	// Buffered is the maximum number of bytes for incomplete messages, requests under way and
	// unread answers of all connections together. A small allowance for each connection is not
	// counted. A subject always leaves a share for other subjects. 256 MiB.
	Buffered int64
	// OnceClients, OnceEach and OnceBytes limit the answers that are kept for requests with Once.
	// They are the number of clients, the number of answers for each client, and the number of
	// bytes in total. If the table is full, answers of the subject that uses most of it are
	// dropped. 65,536; 4,096; 64 MiB.
	OnceClients, OnceEach int
	OnceBytes             int64
	// AtOnce is the maximum number of concurrent calls of the store (store.Fair). A busy server has
	// fewer calls under way to the switches. The limit is low enough to let other work of the
	// process run. 256.
	AtOnce int
	// Lists is the maximum number of concurrent lists, each of which may hold a page of values. A
	// subject always leaves a share for other subjects. 64.
	Lists int
	// Helpers is the maximum number of additional goroutines that read keys for getMany and list. A
	// subject always leaves a share for other subjects. 256.
	Helpers int
	// Farewell is how long the server waits for requests under way after the grace period. 1 s.
	Farewell time.Duration

	// The following limits are changed only by tests, which would take too long with the API's own
	// limits.
	unsent, inFlight, watches int
	onceKept                  time.Duration
}

func (l Limits) withDefaults() Limits {
	set(&l.Connections, 16_384)
	set(&l.MessageTime, 30*time.Second)
	set(&l.StallTime, 60*time.Second)
	set(&l.DescriptorTime, 10*time.Second)
	set(&l.Buffered, 256<<20)
	set(&l.OnceClients, 65_536)
	set(&l.OnceEach, 4_096)
	set(&l.OnceBytes, 64<<20)
	set(&l.AtOnce, 256)
	set(&l.Helpers, 256)
	set(&l.Lists, 64)
	set(&l.Farewell, time.Second)
	set(&l.unsent, nodeapi.MaxUnsentBytes)
	set(&l.inFlight, nodeapi.MaxInFlight)
	set(&l.watches, nodeapi.MaxWatches)
	set(&l.onceKept, nodeapi.OnceKeptMillis*time.Millisecond)
	return l
}

func set[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// backpressure returns the number of unsent bytes of a client at which the server stops reading
// from the client. From this number on, the client's watches also wait.
func (l *Limits) backpressure() int { return l.unsent / 8 }

func (l *Limits) patrolEvery() time.Duration {
	return max(min(l.MessageTime, l.StallTime, l.onceKept)/8, 10*time.Millisecond)
}

// budget counts the bytes that are held for all connections, and divides them among subjects.
type budget struct {
	most int64
	held atomic.Int64

	mu    sync.Mutex
	parts map[string]*part
}

// part is the part of a budget that the connections of one subject use.
type part struct {
	b       *budget
	subject string
	held    atomic.Int64
	conns   int // number of connections; guarded by b.mu
}

// join adds a connection of a subject.
func (b *budget) join(subject string) *part {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[subject]
	if p == nil {
		if b.parts == nil {
			b.parts = map[string]*part{}
		}
		p = &part{b: b, subject: subject}
		b.parts[subject] = p
	}
	p.conns++
	return p
}

// leave removes a connection of the subject. Requests of the connection may still hold bytes.
func (p *part) leave() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.conns--
}

// sweep deletes the parts of subjects that hold nothing.
func (b *budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for subject, p := range b.parts {
		if p.conns == 0 && p.held.Load() == 0 {
			delete(b.parts, subject)
		}
	}
}

// take reserves n bytes. It returns false if that would exceed the subject's share.
func (p *part) take(n int64) bool {
	p.count(n)
	if n <= 0 || shares.Fits(p.held.Load(), p.b.held.Load(), 0, p.b.most) {
		return true
	}
	p.count(-n)
	return false
}

// count adds n bytes without checking a limit. If n is negative, it releases bytes.
func (p *part) count(n int64) {
	p.b.held.Add(n)
	p.held.Add(n)
}
